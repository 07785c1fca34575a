"""What happens when a zygote, a worker or the host is killed, stopped or cannot start; nothing is left of any."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from worker_driver import (
    WAIT_MS,
    read_frame,
    read_hello,
    run_program,
    stub_image,
)

from codemode.errors import CodeModeWorkerError
from codemode.workers import image as images
from codemode.workers.image import GuestRuntimeSource, find_engine, find_parser_site_paths
from codemode.workers.process import spawn_worker_process, wait_until_readable
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

HOST_PROGRAM = """
import json, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
from worker_driver import read_hello, run_program, stub_image
from codemode.workers.zygote import Zygote

def start():
    global zygote
    zygote = Zygote(stub_image())

thread = threading.Thread(target=start)
thread.start()
thread.join()
worker = zygote.spawn()
read_hello(worker)
run_program(worker, sys.argv[2])
zygote.wait_for_pidfd_or_kill_zygote(worker._handle)
for pidfd in (zygote._process.pidfd, worker._handle.pidfd):
    with open(f"/proc/self/fdinfo/{pidfd}") as info:
        print(info.read().split("Pid:")[1].split()[0], end=" ")
print(flush=True)
sys.stdin.read()
"""


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_zygote_without_descriptors_refuses_workers_and_keeps_those_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lockdown = tmp_path / "linux_lockdown.py"
    text = (Path(images.__file__).parents[1] / "guest" / "linux_lockdown.py").read_text()
    # A lower limit would also bound the descriptors that all processes of the user have in flight.
    lockdown.write_text(text + "\nfor _ in range(1000):\n    os.dup(0)\n")
    configuration = images.WorkerImage.to_configuration_json
    monkeypatch.setattr(
        images.WorkerImage,
        "to_configuration_json",
        lambda image, **more: configuration(image, **{**more, "lockdown_path": str(lockdown)}),
    )
    zygote = Zygote(stub_image())
    workers = [zygote.spawn() for _ in range(40)]
    kept = []
    for worker in workers:
        try:
            read_hello(worker)
        except (EOFError, OSError):
            assert "Too many open files" in worker.describe_abnormal_exit()
        else:
            kept.append(worker)
    assert 0 < len(kept) < len(workers)
    assert zygote.is_alive()
    for worker in kept:
        run_program(worker, "text")
        assert read_frame(worker) == (b"V", b'"text"')
    for worker in workers:
        worker.close()
    zygote.kill()


def test_a_looping_worker_is_killed(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "hang")
    assert not worker.is_dead()
    worker.kill()
    assert worker.wait_until_dead(WAIT_MS)
    assert worker.describe_abnormal_exit() == ""
    worker.close()


def test_a_worker_is_killed_before_its_pidfd_has_come(zygote: Zygote) -> None:
    for _ in range(20):
        worker = zygote.spawn()
        worker.kill()
        assert worker.wait_until_dead(WAIT_MS)
        worker.close()
    assert zygote.is_alive()


@pytest.mark.full
def test_a_worker_of_a_stopped_zygote_is_killed_with_it() -> None:
    zygote = Zygote(stub_image())
    first = zygote.spawn()
    read_hello(first)
    signal.pidfd_send_signal(zygote._process.pidfd, signal.SIGSTOP)
    second = zygote.spawn()
    assert not second.is_dead()
    second.kill()
    assert second.wait_until_dead(WAIT_MS)
    assert not zygote.is_alive()
    assert first.wait_until_dead(WAIT_MS)
    for worker in (first, second):
        worker.close()
    zygote.kill()


def test_workers_die_with_their_zygote() -> None:
    zygote = Zygote(stub_image())
    workers = [zygote.spawn() for _ in range(4)]
    for worker in workers:
        read_hello(worker)
        run_program(worker, "hang")
    zygote.kill()
    zygote.kill()
    assert all(worker.wait_until_dead(WAIT_MS) for worker in workers)
    for worker in workers:
        worker.close()
    with pytest.raises(CodeModeWorkerError, match="zygote"):
        zygote.spawn()


def test_a_zygote_killed_from_outside_is_noticed() -> None:
    zygote = Zygote(stub_image())
    signal.pidfd_send_signal(zygote._process.pidfd, signal.SIGKILL)
    assert zygote._process.wait_until_dead(WAIT_MS)
    assert not zygote.is_alive()
    with pytest.raises(CodeModeWorkerError, match="has ended"):
        zygote.spawn()
    zygote.kill()


def test_a_zygote_that_cannot_start_says_why(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.js"
    kernel.write_text("throw new Error('no kernel today')")
    zygote = Zygote(stub_image(GuestRuntimeSource((str(kernel),))))
    assert zygote._process.wait_until_dead(WAIT_MS)
    with pytest.raises(CodeModeWorkerError, match="no kernel today"):
        zygote.spawn()
    zygote.kill()


def test_no_descriptor_is_left() -> None:
    before = open_descriptors()
    zygote = Zygote(stub_image())
    for _ in range(20):
        worker = zygote.spawn()
        read_hello(worker)
        worker.close()
    zygote.spawn().close()
    worker = spawn_worker_process(stub_image(), isolation_required=False)
    worker.close()
    zygote.kill()
    assert open_descriptors() == before


def test_a_forked_child_abandons_what_it_inherited(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    pid = os.fork()
    if pid == 0:
        worker.close_descriptors()
        zygote.close_descriptors()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert zygote.is_alive()
    assert not worker.is_dead()
    run_program(worker, "text")
    assert read_frame(worker) == (b"V", b'"text"')
    worker.close()


def test_end_of_file_from_the_host_ends_an_idle_worker(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    worker.channel.close()
    assert worker.wait_until_dead(WAIT_MS)
    worker.close()


@pytest.mark.parametrize("program", ["hang", "call"])
def test_nothing_outlives_a_killed_host_and_a_short_lived_thread_may_start_it(program: str) -> None:
    paths = json.dumps([str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")])
    host = subprocess.Popen(
        [sys.executable, "-c", HOST_PROGRAM, paths, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with host:
        assert host.stdout is not None
        assert wait_until_readable(host.stdout.fileno(), WAIT_MS)
        pids = host.stdout.readline().split()
        pidfds = [os.pidfd_open(int(pid)) for pid in pids]
        alive = [not wait_until_readable(pidfd, 0) for pidfd in pidfds]
        host.kill()
        host.wait(WAIT_MS / 1000)
    dead = [wait_until_readable(pidfd, WAIT_MS) for pidfd in pidfds]
    for pidfd in pidfds:
        os.close(pidfd)
    assert alive == [True, True]
    assert dead == [True, True]


def test_an_absent_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        raise PackageNotFoundError

    def unrecorded(*_names: str) -> None: ...

    monkeypatch.setattr(images, "find_engine_in_dist_info", unrecorded)
    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(CodeModeWorkerError, match="pip install quickjs-ng"):
        find_engine()


def test_an_absent_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    finder: Callable[[str], None] = lambda _name: None  # noqa: E731
    monkeypatch.setattr(images, "find_spec", finder)
    with pytest.raises(CodeModeWorkerError, match="pip install tree-sitter"):
        find_parser_site_paths()


def test_an_interpreter_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    before = open_descriptors()
    with pytest.raises(CodeModeWorkerError, match="cannot start"):
        Zygote(stub_image())
    with pytest.raises(CodeModeWorkerError, match="cannot start"):
        spawn_worker_process(stub_image(), isolation_required=False)
    assert open_descriptors() == before


def test_a_host_without_free_descriptors_gets_an_error(zygote: Zygote) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    image = stub_image()
    # The limit is on numbers, and there may be gaps: nothing at or above the lowest free one.
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(CodeModeWorkerError, match="cannot"):
            zygote.spawn()
        with pytest.raises(CodeModeWorkerError, match="cannot"):
            Zygote(image)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    worker = zygote.spawn()
    read_hello(worker)
    worker.close()
