"""A sync form takes what its async twin takes."""

from __future__ import annotations

import inspect

from suite import each_row

import codemode
from codemode import CodeCallToolset, CodeModeTool

META_CALLS = ("search", "describe", "execute", "invoke", "call", "resume")
TWINS = [
    (CodeModeTool.execute, CodeModeTool.execute_sync),
    (CodeModeTool.resume, CodeModeTool.resume_sync),
    *((getattr(CodeCallToolset, name), getattr(CodeCallToolset, f"{name}_sync")) for name in META_CALLS),
    (codemode.run_code_mode, codemode.run_code_mode_sync),
    (codemode.continue_interrupt, codemode.continue_interrupt_sync),
    (codemode.continue_approval, codemode.continue_approval_sync),
]


@each_row("twin, sync_form", TWINS)
def test_a_sync_form_has_the_signature_of_its_twin(twin, sync_form):
    assert inspect.iscoroutinefunction(twin)
    assert not inspect.iscoroutinefunction(sync_form)
    assert inspect.signature(sync_form) == inspect.signature(twin)


def test_no_sync_form_is_left_out():
    assert {sync.__name__ for _, sync in TWINS if "." not in sync.__qualname__} == {
        name for name in codemode.__all__ if name.endswith("_sync")
    }
