"""Every sync form takes just what its async twin takes, and gives all of it on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import codemode
from codemode import CodeModeTool
from codemode.surfaces.code_mode import program, resuming, tool

FORMS: dict[str, tuple[Any, str]] = {
    "execute": (CodeModeTool, "execute_sync"),
    "resume": (CodeModeTool, "resume_sync"),
    "continue_interrupt": (resuming, "continue_interrupt_sync"),
    "continue_approval": (resuming, "continue_approval_sync"),
    "run_code_mode": (program, "run_code_mode_sync"),
}


def test_every_public_sync_form_is_looked_at():
    public = {name for name in codemode.__all__ if name.endswith("_sync")}
    methods = {name for name in vars(CodeModeTool) if name.endswith("_sync")}
    assert {name for _, name in FORMS.values()} == public | methods


@pytest.mark.parametrize("name", FORMS)
def test_the_signatures_are_the_same(name):
    owner, sync_name = FORMS[name]
    assert inspect.signature(getattr(owner, sync_name)) == inspect.signature(getattr(owner, name))


@pytest.mark.parametrize("name", ["execute", "resume", "continue_interrupt", "continue_approval"])
def test_every_argument_is_given_on(name, monkeypatch):
    owner, sync_name = FORMS[name]
    parameters = inspect.signature(getattr(owner, sync_name)).parameters.values()
    given = {one.name: object() for one in parameters if one.kind is one.KEYWORD_ONLY}
    leading = [{"js": "return 1"} for one in parameters if one.kind is not one.KEYWORD_ONLY and one.name != "self"]
    heard: list[Any] = []

    async def twin(*arguments: Any, **keywords: Any) -> str:
        heard.append((list(arguments), keywords))
        return "came back"

    monkeypatch.setattr(owner, name, twin)
    monkeypatch.setattr(tool, "started", lambda pool: None)
    form = getattr(CodeModeTool([], None, None) if owner is CodeModeTool else owner, sync_name)
    assert form(*leading, **given) == "came back"
    ((arguments, keywords),) = heard
    assert (arguments[-len(leading) :], keywords) == (leading, given)
