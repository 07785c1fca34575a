"""The gateway as a process over standard input and output: nothing on them but protocol, whatever a client sends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from gateway_clients import USUAL_ERAS, Era, client_over_stdio
from mcp_servers.configured import quick
from suite import full_only
from waiting import until
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
BOUND = 60.0
GATEWAY = Path(__file__).parents[4] / "tests" / "support" / "mcp_servers" / "sums_gateway.py"
PRINTING = """
import { add, shout } from "@codemode/servers/sums";
globalThis.__codemode_result__ = [await add({ a: 1, b: 2 }), await shout({ text: "loud" })];
"""
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


class RawClient:
    """A client that sends and reads lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            self._stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        await self._stdin.drain()

    async def receive(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._stdout.readline(), BOUND)
        assert line, "the gateway has ended"
        return json.loads(line)

    async def ask(self, request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"_meta": MODERN, **params}})
        while (said := await self.receive()).get("id") != request_id:
            pass
        return said

    async def ended(self) -> tuple[int, bytes]:
        """Return the exit code and what else was written."""
        rest = await asyncio.wait_for(self._stdout.read(), BOUND)
        return await asyncio.wait_for(self.process.wait(), BOUND), rest

    def close(self) -> None:
        self._stdin.close()

    def close_channel(self) -> None:
        transport: Any = vars(self.process)["_transport"]
        transport.get_pipe_transport(1).close()


@asynccontextmanager
async def raw_client(
    folder: Path, *arguments: str, python: Sequence[str] = GATEWAYS.python
) -> AsyncGenerator[RawClient]:
    """Give a client of the gateway of sums, or of what these arguments of Python start."""
    process = await asyncio.create_subprocess_exec(
        *python,
        *(arguments or (str(GATEWAY), str(folder))),
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        yield RawClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert b"Traceback" not in await errors


@pytest.mark.parametrize("era", USUAL_ERAS)
def test_a_client_of_the_sdk_runs_a_program_and_hears_of_its_calls(tmp_path: Path, era: Era):
    told: list[tuple[float, Any]] = []

    async def progress(number: float, _total: float | None, message: str | None) -> None:
        told.append((number, message))

    async def main() -> None:
        async with client_over_stdio([str(GATEWAY), str(tmp_path)], era, python=GATEWAYS.python) as client:
            call = client.call_tool("codemode_run", {"code": PRINTING}, progress_callback=progress)
            result = await asyncio.wait_for(call, BOUND)
        assert result.structured_content is not None
        assert result.structured_content["result"] == [3, "loud"]
        assert told == [(1.0, "sums.add"), (2.0, "sums.shout")]

    asyncio.run(main())


def test_whatever_is_printed_is_no_part_of_the_protocol(tmp_path: Path):
    async def main() -> None:
        async with raw_client(tmp_path) as client:
            said = await client.ask(1, "tools/call", name="codemode.run", arguments={"code": PRINTING})
            assert json.loads(said["result"]["content"][0]["text"])["result"] == [3, "loud"]
            client.close()
            assert await client.ended() == (0, b"")

    asyncio.run(main())


def test_rubbish_is_answered_and_what_comes_after_it_as_well(tmp_path: Path):
    rubbish = [
        b"hello",
        b"\xff\xfe\x00",
        b"{}",
        b"[]",
        b"[" * 200_000,
        b'{"jsonrpc":"2.0","id":1,"method":',
        b'{"jsonrpc":"2.0","id":"odd","method":[]}',
        b"",
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never"}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":7}',
    ]

    async def main() -> None:
        async with raw_client(tmp_path) as client:
            await client.send(*rubbish)
            said = await client.ask("after", "tools/list")
            assert [one["name"] for one in said["result"]["tools"]] == ["codemode_run"]
            await client.send(*rubbish)
            assert "result" in await client.ask("again", "tools/list")

    asyncio.run(main())


def test_a_huge_line_is_refused_and_the_next_one_is_not(tmp_path: Path):
    async def main() -> None:
        async with raw_client(tmp_path) as client:
            await client.ask(1, "tools/list")
            await client.send(b'{"jsonrpc":"2.0","id":2,"method":"' + b"x" * (17 << 20) + b'"}')
            refused = await client.receive()
            assert refused["id"] is None
            assert "bytes" in refused["error"]["message"]
            assert "result" in await client.ask(3, "tools/list")

    asyncio.run(main())


def test_what_of_a_request_does_not_fit_is_named_and_not_repeated(tmp_path: Path):
    async def main() -> None:
        async with raw_client(tmp_path) as client:
            for number, params in enumerate(
                [{"name": "codemode_run", "arguments": "a secret text"}, {"name": ["a secret text"]}, {"arguments": {}}]
            ):
                error = (await client.ask(number, "tools/call", **params))["error"]
                assert error["code"] == -32602
                assert "secret" not in json.dumps(error)
                assert ("arguments" if "name" in params and params["name"] == "codemode_run" else "name") in error[
                    "message"
                ]

    asyncio.run(main())


@pytest.mark.parametrize(
    "how",
    [
        "closed pipes",
        signal.SIGTERM,
        *(pytest.param(one, marks=pytest.mark.full) for one in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_the_gateway_ends_with_its_client_and_when_it_is_told_to(tmp_path: Path, how: Any):
    endless = "while (true) await new Promise((done) => setTimeout(done, 20));"

    async def main() -> None:
        async with raw_client(tmp_path, python=(sys.executable,)) as client:
            await client.ask(1, "tools/list")
            call = {"name": "codemode_run", "arguments": {"code": endless}, "_meta": {**MODERN, "progressToken": 1}}
            await client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
            assert "result" in await client.ask(3, "tools/list"), "a program keeps nobody waiting"
            children = children_of(client.process.pid)
            if how == "closed pipes":
                client.close()
                client.close_channel()
            else:
                client.process.send_signal(how)
            code, rest = await client.ended()
            assert code == 0
            assert all("result" not in json.loads(line) for line in rest.splitlines())
            assert not alive(children)

    asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, *full_only(signal.SIGHUP)])
def test_a_signal_while_servers_end_loses_nothing_that_was_learned(tmp_path: Path, number: signal.Signals):
    server, config = quick("stubborn", f"marks={tmp_path}"), tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"quick": {"command": server.command, "args": [*server.args]}}}))
    code = (
        'import { echo } from "@codemode/servers/quick";\nglobalThis.__codemode_result__ = await echo({ text: "a" });'
    )
    log = tmp_path / "log"

    async def main() -> None:
        arguments = ("-m", "codemode", "mcp", "--config", str(config))
        async with raw_client(tmp_path, *arguments, python=(sys.executable,)) as client:
            said = await client.ask(1, "tools/call", name="codemode_run", arguments={"code": code})
            assert said["result"]["structuredContent"]["diagnostics"] == []
            client.close()
            await until(lambda: "left\n" in log.read_text())  # and is waited for, which takes two seconds
            with suppress(ProcessLookupError):  # which has ended meanwhile
                client.process.send_signal(number)
                while number == signal.SIGHUP:  # a terminal that goes may send it more than once
                    await asyncio.sleep(0.05)
                    client.process.send_signal(number)
            await client.ended()

    asyncio.run(main())
    with closing(sqlite3.connect(tmp_path / "codemode" / "shapes.sqlite")) as file:
        assert file.execute("SELECT server, tool FROM shapes").fetchall() == [("quick", "echo")]


def test_what_was_asked_before_the_input_ended_is_answered(tmp_path: Path):
    slow = PRINTING.replace("import", "await new Promise((done) => setTimeout(done, 300));\nimport", 1)
    calls = [
        {"name": "codemode_run", "arguments": {"code": code}, "_meta": MODERN} for code in ("return", slow, PRINTING)
    ]
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": one} for number, one in enumerate(calls)
    ]
    lines.append({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": {"_meta": MODERN}})

    async def main() -> None:
        async with raw_client(tmp_path) as client:
            await client.send(*lines)
            client.close()
            code, rest = await client.ended()
        assert code == 0
        said = [json.loads(line) for line in rest.splitlines()]
        results = {one["id"]: one["result"]["structuredContent"] for one in said if one.get("id") in (0, 1, 2)}
        assert [one.get("result") for _, one in sorted(results.items())] == [None, [3, "loud"], [3, "loud"]]

    asyncio.run(main())


def test_a_client_that_reads_nothing_is_left_when_it_goes(tmp_path: Path):
    large = {"code": "globalThis.__codemode_result__ = 'x'.repeat(90_000);"}

    async def main() -> None:
        async with raw_client(tmp_path) as client:
            for number in range(12):
                call = {"name": "codemode_run", "arguments": large, "_meta": MODERN}
                await client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
            client.close()
            code, rest = await client.ended()
            assert code == 0
            assert all(line.startswith(b'{"') for line in rest.splitlines()[:-1])

    asyncio.run(main())


def alive(pids: list[int]) -> list[int]:
    return [one for one in pids if Path(f"/proc/{one}").exists()]


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended in between
            found += map(int, (task / "children").read_text().split())
    return found
