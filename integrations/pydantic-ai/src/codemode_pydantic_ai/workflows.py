"""Runs of an agent that an engine may repeat, and those in which no program can run. Imports no engine."""

from __future__ import annotations

from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError

from codemode.plugins import refuse_in_workflow


def is_repeated(capability: AbstractCapability[Any] | None) -> bool:
    """Tell whether a durable engine may repeat this run, and match what it has recorded by the order of beginnings."""
    found: list[bool] = []
    if capability is not None:
        capability.apply(lambda one: found.append(getattr(one, "in_durable_context", False) is True))
    return any(found)


def require_place_for_programs() -> None:
    """Raise `UserError` inside a workflow function of Temporal, before anything is started or asked.

    It is the error of which pydantic-ai's plugin for Temporal ends the workflow; for others its task is tried for ever.
    """
    try:
        refuse_in_workflow()
    except RuntimeError:
        raise UserError(
            "An agent that runs programs cannot run inside a Temporal workflow function, which is replayed and may"
            " start no process, and TemporalDurability changes nothing about that: call agent.run in an activity, one"
            " for each run of the agent, and keep what the agent waits for between two of them (stored_pauses, or its"
            " messages). A continuation.journal keeps calls from being made twice when the activity is tried again."
        ) from None
