"""Runs programs for a bounded time. For tests outside the folder whose fixtures do that."""

from __future__ import annotations

from typing import Any

from waiting import within

from codemode import CodeModeError, run_code_mode


def run(js: str, tools: Any = (), *, options: Any = None, pool: Any = None, **policy: Any) -> Any:
    """Run a program; other keywords are its execution policy."""
    given = {**(options or {}), "execution_policy": policy}
    return within(run_code_mode(js, tools, options=given, pool=pool))


def failure(js: str, tools: Any = (), **settings: Any) -> CodeModeError:
    """Run a program that must fail, and return its error."""
    try:
        value = run(js, tools, **settings)
    except CodeModeError as error:
        return error
    raise AssertionError(f"it ended with {value!r}")
