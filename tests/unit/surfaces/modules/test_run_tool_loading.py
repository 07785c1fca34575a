"""What runs programs is imported by whoever first needs it: a host that cannot is answered, and may try again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from codemode import ModuleServer, create_modules_tool
from codemode.surfaces.modules import run_tool

TOOL = create_modules_tool([ModuleServer("clock", {"now": lambda: 1})])


def test_a_host_that_can_import_nothing_more_is_answered_like_any_other(monkeypatch: pytest.MonkeyPatch):
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def load(kind: str) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(run_tool, "import_schema_compiler", load)
    response = asyncio.run(TOOL.execute({"code": "1"}))
    assert [one["code"] for one in response["diagnostics"]] == ["WORKER_FAILED"]
    assert isinstance(response.exception, OSError)
    said = asyncio.run(TOOL.execute({"code": 1}))  # which the same tool, loaded now, refuses by itself
    assert [one["code"] for one in said["diagnostics"]] == ["BAD_REQUEST"]


def test_making_and_describing_a_tool_makes_no_runs():
    tool = create_modules_tool([ModuleServer("clock", {"now": lambda: 1})])
    assert "clock" in tool.description
    assert tool.may_wait_for_person is False
    assert tool._executor is None
