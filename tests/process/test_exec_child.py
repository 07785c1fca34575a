"""A worker that is a child of the host itself, where there is no pidfd to hold it by."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from leftovers import nothing_left
from worker_driver import WAIT_MS

from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.process import PopenProcess, WorkerProcess, spawn_worker_process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers do not run there")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with nothing_left():
        made = spawn_worker_process(WorkerImage.from_installed(GUEST_RUNTIME), isolation_required=False)
        assert isinstance(made._handle, PopenProcess)
        yield made
        made.close()


def test_a_child_without_a_pidfd_is_alive_until_it_is_killed(worker: WorkerProcess) -> None:
    assert worker.channel.recv(1)
    assert not worker.is_dead()
    worker.kill()
    assert worker.wait_until_dead(WAIT_MS)
    assert worker.describe_abnormal_exit() == ""
    worker.kill()


def test_how_a_child_without_a_pidfd_ended_is_told(worker: WorkerProcess) -> None:
    assert worker.channel.recv(1)
    os.kill(worker._handle._process.pid, signal.SIGSEGV)  # type: ignore[attr-defined]
    assert worker.wait_until_dead(WAIT_MS)
    assert worker.describe_abnormal_exit() == "killed by SIGSEGV"


def test_a_forked_child_abandons_a_worker_without_a_pidfd(worker: WorkerProcess) -> None:
    pid = os.fork()
    if pid == 0:
        worker.close_descriptors()
        worker.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not worker.is_dead()
