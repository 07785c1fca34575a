"""When a pool starts its processes, and how."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from leftovers import PATIENCE_SECONDS, children, descriptors, living_children
from pool_driver import Hold, PoolMaker, one, run, zygotes
from suite import full_only
from waiting import until, within

from codemode import CodeModeTimeoutError, WorkerPool, run_code_mode_sync
from codemode.errors import CodeModeWorkerError
from codemode.workers import pool as pool_module
from codemode.workers import supply as supply_module
from codemode.workers import worker_inventory
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.supply import LAYERS, IsolationLayerState
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def process_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_nothing_starts_before_the_first_invocation(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool()
    assert children() == before
    assert pool.isolation is None
    assert one(pool) == 2
    assert len(zygotes(before)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="zygotes need Linux")
def test_only_programs_that_come_apart_have_their_workers_warmed_up(
    make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed_up = list[bool]()

    class Noted(Zygote):
        def __init__(self) -> None:
            super().__init__(WorkerImage.from_installed(GUEST_RUNTIME, ()))

        def spawn(self, *, warm_up: bool = True) -> Any:
            warmed_up.append(warm_up)
            return super().spawn(warm_up=warm_up)

    now = [0.0]
    monkeypatch.setattr(worker_inventory, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(worker_inventory, "MIN_WARM_UP_INTERVAL_SECONDS", 0.004)
    pool = make_pool(source=Noted, spare_workers=1)

    def run_one() -> None:
        assert one(pool) == 2
        within(until(lambda: len(pool.supply.inventory.spares) == 1))

    run_one()
    warmed_up.clear()
    for passed in (0.0, 0.001, 1.0, 0.001):
        now[0] += passed
        run_one()
    assert warmed_up == [False, False, True, False]


def test_import_and_making_a_tool_start_nothing() -> None:
    tool = "codemode.create_code_mode_tool({'f': lambda x: x}).description"
    script = f"import codemode, os; {tool}; print(open('/proc/self/task/%s/children' % os.getpid()).read().split())"
    outcome = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert outcome.stdout.strip() == "[]"


_FIRST_RUN = """
import sys
from codemode import create_code_mode_tool
from codemode.workers import supply
loaded = []

class Watched(supply.Zygote):
    def __init__(self, *given, **named):
        heavy = ("asyncio", "codemode.execution.execution", "codemode.fetch.fetcher")
        loaded.append([name for name in heavy if name in sys.modules])
        super().__init__(*given, **named)

supply.Zygote = Watched
tool = create_code_mode_tool({})
before = (len(loaded), "asyncio" in sys.modules)
print(tool.execute_sync({"js": "return 1"}), before, loaded, "codemode.fetch.fetcher" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a zygote needs Linux")
def test_the_first_worker_starts_before_what_runs_its_program_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_RUN], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "1 (0, False) [[]] False"


def test_start_makes_the_first_spare_and_no_more(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool(spare_workers=2)
    pool.start()
    assert len(zygotes(before)) == 1
    assert "1 spare" in repr(pool)
    pool.start()
    assert "1 spare" in repr(pool)
    assert run_code_mode_sync("return 1", {}, pool=pool) == 1


def test_start_of_a_share_starts_the_whole(make_pool: PoolMaker) -> None:
    pool = make_pool(spare_workers=1)
    share = pool.share("tenant", max_workers=1)
    share.start()
    assert "1 spare" in repr(pool)
    assert "0 spare" in repr(share)


def test_wrong_options_start_nothing(make_pool: PoolMaker) -> None:
    before = children()
    for options in ({"fetch_policy": {"allowed_origins": ["no origin"]}}, {"execution_policy": {"timeout_ms": 0}}):
        with pytest.raises(ValueError, match=r"allowed_origins|timeout_ms"):
            run_code_mode_sync("return 1", {}, options=options, pool=make_pool())
    assert children() == before


def test_start_leaves_failures_to_acquire_and_a_closed_pool_closed(make_pool: PoolMaker) -> None:
    def absent() -> Any:
        raise CodeModeWorkerError("no engine")

    broken = make_pool(source=absent)
    broken.start()
    with pytest.raises(CodeModeWorkerError, match="no engine"):
        run_code_mode_sync("return 1", {}, pool=broken)
    before = children()
    closed = make_pool()
    closed.close()
    closed.start()
    assert children() == before


def test_default_pool_is_one_for_the_process() -> None:
    found: list[WorkerPool] = []
    threads = [
        threading.Thread(target=lambda: found.append(pool_module.get_or_create_default_pool())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("start_method", ["fork", "exec"])
def test_start_methods(make_pool: PoolMaker, start_method: str) -> None:
    pool = make_pool(start_method=start_method)

    async def double(number: int) -> int:
        return number * 2

    for number in range(4):
        program = f"return await tools.double({{number: {number}}})"
        assert run_code_mode_sync(program, {"double": double}, pool=pool) == 2 * number


def test_exec_workers_are_killed_when_the_program_does_not_end(make_pool: PoolMaker) -> None:
    pool = make_pool(start_method="exec")
    with pytest.raises(CodeModeTimeoutError):
        run_code_mode_sync("for (;;);", {}, options={"execution_policy": {"timeout_ms": 200}}, pool=pool)
    assert one(pool) == 2


def test_isolation_report_names_every_layer_and_tells_the_truth(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool(spare_workers=0)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        report = pool.isolation
        assert report is not None
        assert [layer.name for layer in report.layers] == list(LAYERS)
        (zygote,) = zygotes(before)
        (worker,) = living_children(zygote)
        status = process_status(worker)
        in_force = {layer.name for layer in report.layers if layer.state is IsolationLayerState.IN_FORCE}
        assert ("seccomp" in in_force) == (status["Seccomp"] == "2")
        assert ("no-new-privs" in in_force) == (status["NoNewPrivs"] == "1")
        assert "uid-drop" not in in_force or status["Uid"].split()[0] != "0"
        if os.geteuid() == 0:
            assert ("one-descriptor" in in_force) == (list(descriptors(worker)) == ["3"])
        hold.release.set()
        await task

    run(main)


def zygote_without(*layers: str, ask_worker: bool = True) -> type[Zygote]:
    """Zygotes in an environment that refuses some layers; with `ask_worker` off only the host can notice."""

    class Crippled(Zygote):
        def __init__(self, image: WorkerImage, *, isolation_required: bool, **more: Any) -> None:
            super().__init__(image, isolation_required=isolation_required and ask_worker, skip_layers=layers, **more)

    return Crippled


@pytest.mark.parametrize("ask_worker", [True, *full_only(False)])
def test_required_isolation_refuses_a_missing_layer(
    make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch, *, ask_worker: bool
) -> None:
    monkeypatch.setattr(supply_module, "Zygote", zygote_without("seccomp", ask_worker=ask_worker))
    pool = make_pool(isolation="required")
    for _ in range(2):
        with pytest.raises(CodeModeWorkerError, match="seccomp"):
            one(pool)
    assert pool.active == 0


def test_required_isolation_is_met_here(make_pool: PoolMaker) -> None:
    assert one(make_pool(isolation="required")) == 2


def test_a_missing_layer_is_reported_and_still_works(make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply_module, "Zygote", zygote_without("seccomp", "landlock"))
    pool = make_pool()
    assert one(pool) == 2
    assert pool.isolation is not None
    assert pool.isolation["seccomp"].state is IsolationLayerState.REFUSED
    assert pool.isolation["landlock"].state is IsolationLayerState.REFUSED
    assert pool.isolation["rlimits"].state is IsolationLayerState.IN_FORCE
