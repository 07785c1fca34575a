"""What browser tests are given. Tests that are coroutines run on the loop on which their browser and console live."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browsing import Desk, Hall, Visitor, open_hall, serving, visiting
from warm_python import WarmPython


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    hall = pyfuncitem.funcargs["hall"]
    named = pyfuncitem._fixtureinfo.argnames
    hall.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in named}))
    return True


@pytest.fixture(scope="session")
def hall() -> Generator[Hall]:
    """One browser for all of them: each visitor has cookies and pages of its own."""
    with open_hall() as opened:
        yield opened


@pytest.fixture(scope="session")
def console_python() -> Generator[WarmPython]:
    """Processes that have imported the console already."""
    with WarmPython("codemode_console", "uvicorn", "httpx") as python:
        yield python


@pytest.fixture
def tools() -> Sequence[Any]:
    """The tools of the desk; a module or test may give others."""
    return ()


@pytest.fixture
def desk(hall: Hall, tools: Sequence[Any], tmp_path: Path) -> Generator[Desk]:
    with hall.holding(serving(tmp_path / "approvals.db", tools)) as open_desk:
        yield open_desk


@pytest.fixture
def settings() -> dict[str, Any]:
    """What the visitor's browser is told, such as ``{"java_script_enabled": False}``."""
    return {}


@pytest.fixture
def visitor(hall: Hall, desk: Desk, settings: dict[str, Any]) -> Generator[Visitor]:
    with hall.holding(visiting(hall, [desk.url], **settings)) as visit:
        yield visit
