"""What holds for every test: a busy machine is no fault of what is tested, so nothing that is innocent is timed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import settings
from thoroughness import IS_THOROUGH, rounds

settings.register_profile("untimed", deadline=None, max_examples=rounds(40, 100))
settings.load_profile("untimed")

PATIENCE_MS = 60_000


def kept_workers() -> dict[str, int | bool]:
    """Return the options of a pool that differ from the default, by the environment. The product reads none of it."""
    count = int(os.environ.get("CODEMODE_PROGRAMS_PER_WORKER", "1"))
    return {"programs_per_worker": count, "allow_kept_workers": count > 1}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked ``thorough`` to `make test-thorough`: each such test has a form that always runs."""
    if IS_THOROUGH:
        return
    left = [item for item in items if item.get_closest_marker("thorough")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of every full collection of garbage: a third of the time went into those."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def programs_per_worker() -> Iterator[None]:
    """Let every pool of a test keep its workers where CODEMODE_PROGRAMS_PER_WORKER says so, as `make test-thorough`."""
    from codemode import PoolOptions

    with pytest.MonkeyPatch.context() as patch:
        for name, value in kept_workers().items():
            patch.setitem(cast("dict[str, Any]", PoolOptions.__init__.__kwdefaults__), name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_waits() -> Iterator[None]:
    """Let exec and wait wait a minute for tools and servers where a test names no time of its own."""
    from codemode.surfaces.exec_wait.options import ExecWaitOptions

    def waits_ms(options: ExecWaitOptions) -> int:
        if options.wait_timeout_ms is not None:
            return options.wait_timeout_ms
        is_default = options.timeout_ms == ExecWaitOptions.timeout_ms
        return PATIENCE_MS if is_default else options.timeout_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecWaitOptions, "waits_ms", property(waits_ms))
        yield
