"""The process that guards servers: what happens when somebody ends it, and what it leaves."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from codemode_gateway import connect
from codemode_gateway.upstreams.process_supervisor import ProcessSupervisor, SpawnError
from mcp_servers.configured import of, quick
from waiting import until, within

from codemode.errors import CodeModeToolError


def test_servers_of_one_loop_have_one_guard_and_go_on_after_it_was_killed():
    async def work():
        async with connect(of(quick(name="a"), quick(name="b"))) as connected:
            first = [(await one.call("pid", {})).structured_content["pid"] for one in connected.upstreams]
            guard = ProcessSupervisor.acquire()
            process = guard._process
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            await until(lambda: all(one.state == "stopped" for one in connected.upstreams))
            again = [(await one.call("pid", {})).structured_content["pid"] for one in connected.upstreams]
            assert not {*first} & {*again}
            await guard.release()

    within(work())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_servers_find_nothing_of_the_gateways_environment_at_their_guard(monkeypatch):
    monkeypatch.setenv("KEY_OF_THE_GATEWAY", "hidden")

    async def work():
        async with connect(of(quick())) as connected:
            pid = (await connected.upstream("quick").call("pid", {})).structured_content["pid"]
            guard = ProcessSupervisor.acquire()
            assert guard._process is not None
            for one in (pid, guard._process.pid):
                assert b"KEY_OF_THE_GATEWAY" not in _environment(one)
            await guard.release()

    within(work())


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:  # of the guard, for whoever is not root
        return b""


@pytest.mark.parametrize(
    ("args", "cwd", "at"),
    [(["/no/such/program"], None, "command"), (["x\0y"], None, "command"), (["true"], "/no", "cwd")],
)
def test_what_cannot_be_started_says_what_stands_in_the_way(args, cwd, at):
    async def work():
        guard = ProcessSupervisor.acquire()
        try:
            with pytest.raises(SpawnError) as raised:
                await guard.spawn(args, {}, cwd, (0, 1, 2))
            assert raised.value.at == at
        finally:
            await guard.release()
        assert guard._process is None

    within(work())


def test_a_server_that_has_ended_before_anybody_hears_that_it_began_says_why(monkeypatch):
    read = ProcessSupervisor._receive_messages

    def read_late(guard):
        """Hear that a server has begun when it can be heard too that it has ended, as on a machine that stood still."""
        until = time.monotonic() + 60
        while time.monotonic() < until and guard._control is not None:
            waiting = guard._control.recv(1 << 16, socket.MSG_PEEK)
            if not waiting or b'"exit"' in waiting:
                break
            time.sleep(0.001)
        read(guard)

    monkeypatch.setattr(ProcessSupervisor, "_receive_messages", read_late)

    async def work():
        async with connect(of(quick("crash"))) as connected:
            with pytest.raises(CodeModeToolError, match="it ended with exit code 4: cannot start"):
                await connected.upstream("quick").tools()

    within(work())


def test_a_guard_whose_start_was_cancelled_is_waited_for():
    async def work():
        guard = ProcessSupervisor.acquire()
        task = asyncio.create_task(guard.spawn(["true"], {}, None, (0, 1, 2)))
        await asyncio.sleep(0)
        assert guard._start_lock.locked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        started = guard._process
        await guard.release()
        assert started is not None
        assert started.returncode is not None

    within(work())


def test_a_start_that_nobody_waits_for_any_more_leaves_no_server(tmp_path):
    async def work():
        for _ in range(5):
            async with connect(of(quick(f"marks={tmp_path}"))) as connected:
                task = asyncio.create_task(connected.upstream("quick").tools())
                await asyncio.sleep(0)
                task.cancel()
        async with connect(of(quick(f"marks={tmp_path}"))) as connected:
            task = asyncio.create_task(connected.upstream("quick").tools())
            await until(lambda: connected.upstream("quick").state == "starting")
        with pytest.raises((CodeModeToolError, asyncio.CancelledError)):
            await task
        log = tmp_path / "log"
        started = [int(line.split()[1]) for line in log.read_text().splitlines()] if log.exists() else []
        await until(lambda: not any(map(is_alive, started)))

    within(work())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose an orphan is")
def test_what_a_server_has_put_into_another_session_ends_with_it():
    script = "setsid sh -c 'echo $$; sleep 300 & echo $!; wait' & read line; exit 3"

    async def work():
        guard = ProcessSupervisor.acquire()
        try:
            (stdin, written), (read, stdout) = os.pipe(), os.pipe()
            other = await guard.spawn(["sleep", "300"], dict(os.environ), None, (0, 1, 2))
            child = await guard.spawn(["sh", "-c", script], dict(os.environ), None, (stdin, stdout, 2))
            os.close(stdout)
            with os.fdopen(read) as said, os.fdopen(written, "w"):
                pids = [int(await asyncio.to_thread(said.readline)) for _ in range(2)]
                os.close(stdin)
            assert await child.exited == 3
            await until(lambda: not any(map(is_alive, pids)))
            assert is_alive(other.pid)
        finally:
            await guard.release()

    within(work())
