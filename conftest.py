"""Shared configuration of all tests. Time limits are generous, because machines are busy."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from suite import IS_FULL, rounds

# Deterministic examples by default; random ones in the full suite.
settings.register_profile("untimed", deadline=None, max_examples=rounds(15, 100), derandomize=not IS_FULL)
settings.load_profile("untimed")

# Collecting tests creates little garbage: without its collection that takes a third less time.
gc.disable()

PATIENCE_MS = 60_000

# A background shell may ignore SIGINT, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROGRAMS_PER_WORKER = int(os.environ.get("CODEMODE_PROGRAMS_PER_WORKER", "1"))

HALTS: Any = None
if "CODEMODE_HALTS" in os.environ:
    from halts import Halts

    HALTS = Halts.of(os.environ["CODEMODE_HALTS"])
    HALTS.patch(setattr)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked ``full`` in the default suite."""
    if IS_FULL:
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_runtest_setup() -> None:
    """Reset the delay budget of CODEMODE_HALTS for each test."""
    if HALTS is not None:
        HALTS.begin_test()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from later garbage collections, of which they took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Reset the signing key after each file, and freeze what it has left for the garbage collector."""
    yield
    if nextitem is None or nextitem.path != item.path:
        if keys := sys.modules.get("codemode.continuations.keys"):
            keys.set_continuation_signing_key()
        gc.collect()
        gc.freeze()


@pytest.fixture
def passing_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Advances the clock of every deadline of a run: a `PassingTime`."""
    from passing_time import PassingTime

    return PassingTime(monkeypatch.setattr)


@pytest.fixture(scope="session")
def warm_gateways() -> Iterator[None]:
    """Start gateways and their servers ahead (`GATEWAYS.python`)."""
    from warm_commands import GATEWAYS

    with GATEWAYS:
        yield


@pytest.fixture(scope="session", autouse=True)
def programs_per_worker() -> Iterator[None]:
    """Make pools reuse workers if CODEMODE_PROGRAMS_PER_WORKER is above 1, as in `make test-kept`.

    Tests that set the option or pass workers of their own are unaffected.
    """
    from codemode import PoolOptions, WorkerPool

    make = WorkerPool.__init__

    def make_keeping(pool: WorkerPool, options: Any = None, *, source: Any = None) -> None:
        options = PoolOptions.of(options)
        if source is None and not options.is_set_explicitly("programs_per_worker"):
            options = options.with_defaults(programs_per_worker=PROGRAMS_PER_WORKER, allow_kept_workers=True)
        make(pool, options, source=source)

    with pytest.MonkeyPatch.context() as patch:
        if PROGRAMS_PER_WORKER > 1:
            patch.setattr(WorkerPool, "__init__", make_keeping)
        yield


@pytest.fixture(scope="session", autouse=True)
def cold_spares() -> Iterator[None]:
    """Disable the warm-up of spare workers in the default suite: it takes as long as most programs."""
    from codemode.workers import worker_inventory

    with pytest.MonkeyPatch.context() as patch:
        if not IS_FULL:
            patch.setattr(worker_inventory, "MIN_WARM_UP_INTERVAL_SECONDS", float("inf"))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_waits() -> Iterator[None]:
    """Raise the timeout of exec and wait to a minute, unless a test sets one."""
    from codemode.surfaces.exec_wait.options import ExecWaitOptions

    def effective_wait_timeout_ms(options: ExecWaitOptions) -> int:
        if options.wait_timeout_ms is not None:
            return options.wait_timeout_ms
        is_default = options.timeout_ms == ExecWaitOptions.timeout_ms
        return PATIENCE_MS if is_default else options.timeout_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecWaitOptions, "effective_wait_timeout_ms", property(effective_wait_timeout_ms))
        yield
