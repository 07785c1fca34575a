"""LangGraph's interrupts and what else of it comes as an exception: raised, recognised, taken. Imports it late."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

_TAKEN = "codemode_interrupts"


def raise_interrupts(interrupts: Sequence[Any]) -> NoReturn:
    """End the node with these interrupts."""
    from langgraph.errors import GraphInterrupt

    raise GraphInterrupt(tuple(interrupts))


def interrupts_in(error: BaseException) -> tuple[Any, ...] | None:
    """Return what ``interrupt()`` raised, each once, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    raised = getattr(error, _TAKEN, error.args[0] if error.args else ())
    # A graph inside a graph reports an interrupt of a task twice: from the task, and from the node that it raised in.
    return tuple({one.id: one for one in raised}.values())


def take_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Take what ``interrupt()`` raised out of a task's error, for who waits for the task reports it.

    Taken before the task has ended, it is not in the checkpoint either. `interrupts_in` finds it still.
    """
    found = interrupts_in(error)
    if found is not None:
        setattr(error, _TAKEN, found)
        error.args = ((),)
    return found


def command_in(error: BaseException) -> Any:
    """Return the command with which a graph inside a tool hands over to this one, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.ParentCommand):
        return None
    return replace(error.args[0], graph=None)


def is_wrong_answer(error: BaseException) -> bool:
    """True for the error of an answer that does not fit the response schema of its ``interrupt()``."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and bool(errors.is_invalid_resume(error))
