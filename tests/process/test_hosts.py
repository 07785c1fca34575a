"""Hosts as they are: they fork, end, get signals, close loops. Nothing hangs, nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import no_orphan_left, nothing_left
from suite import each_row, full_only

_HOSTS = Path(__file__).parent / "hosts"
_HOST_SECONDS = 120


def run_host(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a host to its end, which must come in time and leave no process."""
    command = [sys.executable, "-W", "error", str(_HOSTS / script), *arguments]
    with nothing_left(), no_orphan_left():
        return subprocess.run(command, capture_output=True, text=True, timeout=_HOST_SECONDS, check=False)


def assert_fine(outcome: subprocess.CompletedProcess[str]) -> None:
    assert not outcome.stderr, outcome.stderr
    assert (outcome.returncode, outcome.stdout) == (0, "ok\n")


@pytest.mark.parametrize("method", ["fork", *full_only("spawn", "forkserver")])
def test_multiprocessing(method: str) -> None:
    assert_fine(run_host("forks.py", method))


@pytest.mark.parametrize(
    ("ending", "start_method"), [("exit", "fork"), *full_only(("_exit", "fork"), ("exit", "exec"))]
)
def test_fork_in_the_middle_of_a_run(ending: str, start_method: str) -> None:
    assert_fine(run_host("forks_during_run.py", ending, start_method))


_WORKERS = [("1", "fork"), *full_only(("20", "fork"), ("1", "exec"), ("20", "exec"))]


@pytest.mark.full
@pytest.mark.parametrize(("programs", "start_method"), _WORKERS)
def test_fork_while_another_thread_has_every_lock(programs: str, start_method: str) -> None:
    assert_fine(run_host("forks_with_locks_held.py", programs, start_method))


@pytest.mark.parametrize(("programs", "start_method"), _WORKERS)
def test_pools_that_nobody_closed(programs: str, start_method: str) -> None:
    assert_fine(run_host("drops_pools.py", programs, start_method))


@each_row(
    "script",
    [
        "threads.py",
        *full_only(
            "no_descriptors.py",
            "tool_forks.py",
            "checks_of_two_tenants.py",
            "closed_loop.py",
            "forks_during_start.py",
            "forks_in_first_import.py",
            "notebook.py",
            "stopped_loop.py",
        ),
    ],
)
def test_host(script: str) -> None:
    assert_fine(run_host(script))


@pytest.mark.parametrize("start_method", ["fork", *full_only("exec")])
def test_first_use_in_a_thread_that_ends(start_method: str) -> None:
    assert_fine(run_host("short_lived_thread.py", start_method))


@pytest.mark.full
@pytest.mark.parametrize("way", ["reaps", *full_only("ignored", "blocked")])
def test_sigchld(way: str) -> None:
    assert_fine(run_host("sigchld.py", way))


@pytest.mark.parametrize("way", ["run", *full_only("sync", "notebook")])
def test_ctrl_c(way: str) -> None:
    assert_fine(run_host("interrupted.py", way))


_ENDS = {
    "sys.exit": 3,
    "os._exit": 3,
    "error": 1,
    "SIGKILL": -signal.SIGKILL,
    "SIGTERM": -signal.SIGTERM,
    "abort": -signal.SIGABRT,
}
_ORDINARY = ("sys.exit", "SIGKILL")


@each_row(
    "how, code, start_method",
    [
        *((how, _ENDS[how], "fork") for how in _ORDINARY),
        *full_only(*((how, code, "fork") for how, code in _ENDS.items() if how not in _ORDINARY)),
        *full_only(*((how, code, "exec") for how, code in _ENDS.items())),
    ],
)
def test_a_host_that_ends_in_the_middle_of_a_run(how: str, code: int, start_method: str) -> None:
    assert run_host("leaves.py", how, start_method).returncode == code


def test_interpreter_shutdown_in_the_middle_of_a_run() -> None:
    outcome = run_host("shutdown.py")
    assert (outcome.returncode, outcome.stdout) == (0, "ok\nthe worker pool is closed\n")
    assert "Traceback" not in outcome.stderr


@pytest.mark.full
@pytest.mark.parametrize("way", ["warm", *full_only("cold")])
def test_fork_while_a_program_of_exec_waits(way: str) -> None:
    assert_fine(run_host("exec_wait_forks.py", way))
