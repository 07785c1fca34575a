"""What holds for every test: a busy machine is no fault of what is tested, so nothing that is innocent is timed."""

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

# The examples are the same each time where a change is judged, and others whenever more of them are looked for.
settings.register_profile("untimed", deadline=None, max_examples=rounds(15, 100), derandomize=not IS_FULL)
settings.load_profile("untimed")

# While tests are collected hardly anything is garbage, and a third of that time went into looking for it.
gc.disable()

PATIENCE_MS = 60_000

# Whoever runs the tests in the background may ignore Ctrl-C, and all that they start would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROGRAMS_PER_WORKER = int(os.environ.get("CODEMODE_PROGRAMS_PER_WORKER", "1"))

HALTS: Any = None
if "CODEMODE_HALTS" in os.environ:
    from halts import Halts

    HALTS = Halts.of(os.environ["CODEMODE_HALTS"])
    HALTS.patch(setattr)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked ``full`` to `make test-full`: each such test has a form that always runs."""
    if IS_FULL:
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_runtest_setup() -> None:
    """Let each test stand still for as long as the one before, where CODEMODE_HALTS lets the machine stand still."""
    if HALTS is not None:
        HALTS.begin_test()


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of every full collection of garbage: a third of the time went into those."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Forget the signing key that a file has set, and leave what it has made out of every later look for garbage."""
    yield
    if nextitem is None or nextitem.path != item.path:
        if keys := sys.modules.get("codemode.continuations.keys"):
            keys.set_continuation_signing_key()
        gc.collect()
        gc.freeze()


@pytest.fixture
def passing_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that a test lets pass for every deadline of a run: a `PassingTime`."""
    from passing_time import PassingTime

    return PassingTime(monkeypatch.setattr)


@pytest.fixture(scope="session")
def warm_gateways() -> Iterator[None]:
    """Let `GATEWAYS.python` start gateways and their servers, for all tests that need some."""
    from warm_commands import GATEWAYS

    with GATEWAYS:
        yield


@pytest.fixture(scope="session", autouse=True)
def programs_per_worker() -> Iterator[None]:
    """Let pools keep workers where CODEMODE_PROGRAMS_PER_WORKER says so, as `make test-kept` does.

    Those of a test that names the option itself, or gives workers of its own, stay as they are.
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
    """Let the default suite warm up no spare worker but in `test_warm_up.py`: that takes as long as most programs."""
    from codemode.workers import worker_inventory

    with pytest.MonkeyPatch.context() as patch:
        if not IS_FULL:
            patch.setattr(worker_inventory, "MIN_WARM_UP_INTERVAL_SECONDS", float("inf"))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_waits() -> Iterator[None]:
    """Let exec and wait wait a minute for tools and servers where a test names no time of its own."""
    from codemode.surfaces.exec_wait.options import ExecWaitOptions

    def effective_wait_timeout_ms(options: ExecWaitOptions) -> int:
        if options.wait_timeout_ms is not None:
            return options.wait_timeout_ms
        is_default = options.timeout_ms == ExecWaitOptions.timeout_ms
        return PATIENCE_MS if is_default else options.timeout_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecWaitOptions, "effective_wait_timeout_ms", property(effective_wait_timeout_ms))
        yield
