"""Runs programs with a bounded wait on the default pool, and checks that nothing is left after the process tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from calls import with_call
from fetching import ask_at
from http_server import HttpServer
from kernel_driver import KernelDriver
from leftovers import nothing_left as nothing_left_of_a_test
from model_waits import ModelWaits
from pausing import Spy
from process_fixtures import *  # noqa: F403
from waiting import within
from worker_driver import stub_image
from wrong_worker_host import Host, well_behaved

from codemode import CodeModeError, CodeModeOptions, ExecutionPolicy, PoolOptions, WorkerPool, run_code_mode
from codemode.execution.runner import Runner
from codemode.host.clock import PausableTimer
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.zygote import Zygote


def run_program(js: str, tools: Any = (), *, options: Any = None, **settings: Any) -> Any:
    """Run a program; keywords that are no setting of `run_code_mode` are limits."""
    given = with_call(settings)
    settings = {key: given.pop(key) for key in list(given) if key not in ("call", "pool")}
    if settings:
        options = CodeModeOptions(**(options or {}), execution_policy=ExecutionPolicy(**settings))
    return within(run_code_mode(js, tools, options=options, **given))


def failing_program(error_class: type[CodeModeError], js: str, tools: Any = (), **settings: Any) -> Any:
    """Run a program that must end with an error of exactly this class, and return the error."""
    with pytest.raises(CodeModeError) as caught:
        run_program(js, tools, **settings)
    assert type(caught.value) is error_class, repr(caught.value)
    return caught.value


@pytest.fixture(name="within")
def _within() -> Callable[..., Any]:
    return within


@pytest.fixture
def run() -> Callable[..., Any]:
    return run_program


@pytest.fixture
def fails() -> Callable[..., Any]:
    return failing_program


@pytest.fixture
def make_pool() -> Iterator[Callable[..., WorkerPool]]:
    """Make pools that are closed after the test."""
    made: list[WorkerPool] = []

    def make(*, source: Any = None, **options: Any) -> WorkerPool:
        made.append(WorkerPool(PoolOptions(**options), source=source))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def computing_pool(make_pool: Callable[..., WorkerPool], monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    """A pool whose workers count what they compute for a program's time; hosts give each program a minute at the least.

    So a program comes as far as it may on a busy machine too, and its worker is who stops it. See `worker_time`.
    """
    made = Runner._make_clock

    def clock_of(runner: Runner, milliseconds: int, on_passed: Callable[[], None]) -> PausableTimer:
        return made(runner, max(milliseconds, 60_000), on_passed)

    monkeypatch.setattr(Runner, "_make_clock", clock_of)
    in_worker = str(Path(__file__).parent / "worker_time.py")
    return make_pool(source=lambda: Zygote(WorkerImage.from_installed(GUEST_RUNTIME), test_hook_path=in_worker))


@pytest.fixture
def host() -> Iterator[Host]:
    """A host whose next program, on a worker that behaves, must run as ever."""
    one = Host()
    yield one
    one.calls = 0
    assert one.run(well_behaved) == "echo"
    assert one.calls == 1
    one.close()


@pytest.fixture
def model_waits(monkeypatch: pytest.MonkeyPatch) -> ModelWaits:
    return ModelWaits(monkeypatch)


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    """A zygote whose workers have the stub kernel."""
    zygote = Zygote(stub_image())
    yield zygote
    zygote.kill()


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelDriver]:
    """Workers with the real kernel and no host."""
    driver = KernelDriver()
    yield driver
    driver.close()


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Fail when the test, with what it has closed at its end, leaves a child or a descriptor."""
    with nothing_left_of_a_test():
        yield


@pytest.fixture
def ask(server: HttpServer) -> Callable[..., Any]:
    """Run programs whose fetch may reach the server."""
    return partial(ask_at, server)
