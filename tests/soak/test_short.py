"""The long runs, short: the same checks, no times. `make soak` runs them long and prints the figures."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys

import pytest
from suite import full_only, rounds
from tests.soak import stalls
from tests.soak.chaos import run_chaos
from tests.soak.load import cancel_waiting, run_at_once, run_from_threads
from tests.soak.rests import run_rests
from tests.soak.soak import Figures, problems_of, run_soak
from tests.soak.tenants import Tenant, check_apart, side_by_side
from tests.support.leftovers import nothing_left, read_line
from waiting import until

from codemode import Tool

PROGRAMS = 50  # of a worker that is kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.full
@pytest.mark.parametrize(
    ("face", "start_method", "invocations"),
    [
        ("codeMode", "fork", rounds(60, 150)),
        *full_only(("codeMode", "exec", 40), ("codeCall", "fork", 100)),
    ],
)
def test_chaos_with_every_failed_run_carried_on(face: str, start_method: str, invocations: int) -> None:
    chaos = run_chaos(invocations, seed=7, start_method=start_method, face=face, seconds=120)
    assert chaos.endings["result"] == chaos.invocations >= invocations
    # Without enough of both the test would prove nothing.
    assert chaos.carried >= 1, (chaos.endings, chaos.reign.sent)
    assert chaos.reign.sent["worker SIGKILL"] >= 10, chaos.reign.sent


@pytest.mark.full
def test_chaos_with_workers_that_are_kept() -> None:
    count = 150
    chaos = run_chaos(count, seed=7, programs_per_worker=PROGRAMS, seconds=120)
    assert chaos.endings["result"] == chaos.invocations >= count
    assert chaos.most_kept >= 1
    assert chaos.reign.sent["worker SIGKILL"] >= 10, chaos.reign.sent


@pytest.mark.full
@pytest.mark.parametrize(("start_method", "programs"), [("fork", rounds(40, 80)), *full_only(("exec", 20))])
def test_chaos_with_programs_that_rest(start_method: str, programs: int) -> None:
    rests = run_rests(programs, seed=7, start_method=start_method, seconds=120)
    # Without enough of each the test would prove nothing.
    assert rests.ends["completed"] >= programs // 4, (rests.ends, rests.reign.sent)
    assert rests.reign.sent["worker SIGKILL"] >= 5, rests.reign.sent
    assert rests.pair.telemetry["wakesCold"] >= 1, rests.pair.telemetry


@pytest.mark.full
@pytest.mark.parametrize(("programs_per_worker", "count"), [(None, rounds(36, 300)), *full_only((PROGRAMS, 300))])
def test_soak(programs_per_worker: int | None, count: int) -> None:
    figures = run_soak(count, warm_up=count // 2, every=count // 3, programs_per_worker=programs_per_worker)
    assert problems_of(figures) == []
    assert len(figures.latencies_ms) == count
    assert programs_per_worker is None or max(figures.kept) >= 1


def test_a_soak_that_leaks_is_told() -> None:
    leaking = Figures([1.0], [10 << 20, 16 << 20], [10, 13], [1, 2], [1, 5])
    assert [problem.split(":")[0].split()[0] for problem in problems_of(leaking)] == [
        "memory", "descriptors", "processes", "waiting",
    ]  # fmt: skip
    assert problems_of(Figures([1.0], [10 << 20, 14 << 20], [10, 12], [1, 1], [0, 4])) == []


@pytest.mark.full
@pytest.mark.parametrize(("start_method", "invocations"), [("fork", rounds(10, 50)), *full_only(("exec", 8))])
def test_programs_of_hundreds_of_refused_calls_never_stand_still(start_method: str, invocations: int) -> None:
    done = stalls.run_stalls(invocations, hogs=1, start_method=start_method, seconds=120)
    assert done.watchdog is not None
    assert (done.wrong, done.watchdog.stalls) == ([], [])
    assert len(done.seconds) == invocations


def test_a_hog_dies_with_whoever_started_it() -> None:
    script = (
        "import subprocess; from tests.soak import stalls; print(subprocess.Popen(stalls.hog_command()).pid); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        hog = os.pidfd_open(int(read_line(parent.stdout)))
        try:
            assert select.select([hog], [], [], 0)[0] == []
            parent.kill()
            assert select.select([hog], [], [], 30)[0] == [hog]
        finally:
            os.close(hog)


def test_a_program_that_stands_still_is_described_from_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> None:
        monkeypatch.setattr(stalls, "QUIET_SECONDS", 0.3)  # not before: its worker may take longer than that to start
        await until(lambda: watchdogs[0].stalls)

    class Noted(stalls.Watchdog):
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(loop)
            watchdogs.append(self)

    watchdogs: list[stalls.Watchdog] = []
    monkeypatch.setattr(stalls, "QUIET_SECONDS", 60)
    monkeypatch.setattr(stalls, "Watchdog", Noted)
    monkeypatch.setattr(stalls, "TOOLS", [Tool("wait", execute=wait)])
    monkeypatch.setattr(stalls, "PROGRAMS", {"waits": "i ? Promise.reject(i) : tools.wait()"})
    monkeypatch.setattr(stalls, "FEWEST_REFUSED", {"waits": 299})
    done = stalls.run_stalls(1, hogs=0, seconds=60)
    assert done.wrong == []
    assert done.watchdog is not None
    (told,) = done.watchdog.stalls
    for part in ("'owed_count': 0", "unsettled [1]", "readers and writers", "wchan: ", "State:"):
        assert part in told, told


@pytest.mark.full
def test_hundreds_at_once_on_four_workers() -> None:
    assert len(run_at_once(rounds(150, 250)).admitted) == rounds(150, 250)


def test_eight_threads_with_loops_of_their_own() -> None:
    run_from_threads(rounds(6, 15))


def test_cancelled_ones_leave_while_every_slot_is_taken() -> None:
    with nothing_left():
        asyncio.run(asyncio.wait_for(cancel_waiting(100, 30), 60))


@pytest.mark.parametrize(("start_method", "count"), [("fork", rounds(32, 120)), *full_only(("exec", 24))])
def test_tenants_side_by_side_see_nothing_of_one_another(start_method: str, count: int) -> None:
    with nothing_left():
        check_apart(asyncio.run(side_by_side(count, start_method)))


def test_a_secret_that_got_across_is_told() -> None:
    first, second = Tenant("A"), Tenant("B")
    for tenant in (first, second):
        tenant.heard += [{"value": tenant.secret}] * 8 + [{"invocationId": tenant.name}]
    check_apart([first, second])
    second.heard.append({"value": f"said {first.secret}"})
    with pytest.raises(AssertionError):
        check_apart([first, second])
