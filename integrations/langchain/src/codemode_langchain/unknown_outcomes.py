"""What people are asked about calls of which nobody knows whether they happened. Asks nobody itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from codemode import PendingRequest
from codemode.plugins import UNKNOWN_OUTCOME_KIND, with_texts

from .approvals import Question
from .decisions import DecisionType, decision_type
from .outer_calls import OuterCall

_NOT_DONE = "a person says that this call failed"


def is_unknown(request: PendingRequest) -> bool:
    """Tell whether a request is about one call that had begun, and of which nobody knows how it ended."""
    return request.payload.get("kind") == UNKNOWN_OUTCOME_KIND


def unknown_call(request: PendingRequest, call: OuterCall) -> Question:
    """Return what a person is asked about one call that the journal says had begun."""
    name, has_value = call.shown_name(request.tool_name), call.tool_named(request.tool_name) is not None
    given: Any = request.input
    arguments = cast("Any", given) if isinstance(given, dict) else {"input": given}
    description = (
        "Unknown outcome: the process that made this call ended before its outcome was known. Approve to make it again,"
        " reject to let it fail in the program"
        f"{', respond with what it gave if it has happened' if has_value else ''}.\n\nTool: {name}\nArgs: {arguments}"
    )
    allowed: tuple[DecisionType, ...] = ("approve", "reject", "respond") if has_value else ("approve", "reject")
    value = {"type": "unknown_outcome", "tool_call_id": request.tool_call_id}
    return _question(request.interrupt_id, request, value, name, arguments, description, allowed)


def unknown_program(key: str, request: PendingRequest, call: OuterCall) -> Question:
    """Return what a person is asked about a program whose process ended in the middle, where no journal was kept."""
    arguments = dict(call.arguments)
    description = (
        "Unknown outcome: this program was cut off in the middle, for its process ended or its run was cancelled, and"
        " calls of its tools may have happened. Approve to run it again from where it last waited, with all that"
        f" follows.\n\nProgram:\n{call.program or arguments}"
    )
    value = {"type": "unknown_outcome"}
    return _question(key, request, value, call.name, arguments, description, ("approve", "reject"))


def known_outcome(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the core takes for a decision about one call of unknown outcome."""
    if decision["type"] == "reject":
        return {"error": {"message": decision.get("message") or _NOT_DONE}}
    return {"value": decision["message"]} if decision["type"] == "respond" else {"runAgain": True}


def _question(
    key: str,
    request: PendingRequest,
    value: dict[str, Any],
    name: str,
    arguments: Any,
    description: str,
    allowed: tuple[DecisionType, ...],
) -> Question:
    action = {"name": name, "args": arguments, "description": description}
    value |= {
        **action,
        "action_requests": [action],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed)}],
    }
    return Question(key=key, request=request, value=with_texts(value), response_schema=decision_type(name, allowed))
