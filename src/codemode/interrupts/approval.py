"""Read decisions about nested calls and make the errors of denials."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..data.narrowing import mapping_or_empty
from ..errors import (
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolApprovalRequiredError,
)
from ..options.checked_fields import WrongTypeError
from ..options.parts import ApprovalPolicy
from ..records import record

_log = logging.getLogger("codemode.tools")
_EXPECTED_SHAPES = 'an approval decision must be "approved", "denied" or {"approved": bool, "reason"?: str}'


@record
class ApprovalRequest:
    """The nested call that a person decides about. ``input`` is the validated input as plain JSON."""

    tool_name: str
    input: Any
    tool_call_id: str


@record
class ApprovalDecision:
    """A person's answer. ``reason`` is for the host only, unless the policy allows more."""

    approved: bool
    reason: str | None = None


async def ask_callback(callback: Callable[..., Any] | None, request: ApprovalRequest) -> Any:
    """Return the answer of the host's callback; None without a callback."""
    answer = callback(request) if callback is not None else None
    return await answer if inspect.isawaitable(answer) else answer


def parse_callback_answer_or_raise(answer: Any, request: ApprovalRequest) -> ApprovalDecision:
    """Read a decision: "approved", any other text (denied), or ``{"approved": bool, "reason"?: str}``.

    Raises `CodeModeToolApprovalRequiredError` for None, `CodeModeProtocolError` for any other value.
    """
    if answer is None:
        _log.warning(
            "tool %r needs approval and no decision was made: set approval.on_approval_required or approval.mode ="
            " 'interrupt'",
            request.tool_name,
        )
        error = CodeModeToolApprovalRequiredError(
            f"tool {request.tool_name!r} needs approval and no decision was made",
            details={"tool_name": request.tool_name, "tool_call_id": request.tool_call_id},
        )
        error.reason = "approval_required"
        raise error
    if isinstance(answer, str):
        return ApprovalDecision(answer == "approved")
    if not isinstance(answer, dict):
        raise _make_malformed_error(f"{_EXPECTED_SHAPES}, not {type(answer).__name__}", request)
    decision_fields = mapping_or_empty(answer)
    if "input" in decision_fields and decision_fields["input"] != request.input:
        text = "an approval callback cannot change the input: approval.mode='interrupt' takes answers that do"
        raise _make_malformed_error(text, request)
    try:
        return parse_decision(decision_fields, "an approval decision")
    except ValueError as error:
        raise _make_malformed_error(str(error), request) from None


def parse_decision(answer: Mapping[str, Any], what: str) -> ApprovalDecision:
    """Read ``{"approved": bool, "reason"?: str}``; ignore other keys.

    Raises `ValueError` for another shape; ``what`` names the answer in its message.
    """
    approved, reason = answer.get("approved"), answer.get("reason")
    if not isinstance(approved, bool):
        raise WrongTypeError(f"{what} needs a boolean 'approved'")
    if reason is not None and not isinstance(reason, str):
        raise WrongTypeError(f"{what}'s 'reason' must be a string")
    return ApprovalDecision(approved, reason)


def is_decision(answer: Mapping[str, Any]) -> bool:
    """Return True if an answer has the shape of a decision."""
    try:
        parse_decision(answer, "")
    except ValueError:
        return False
    return True


def mark_decision_failure_if_host_error(error: CodeModeError) -> None:
    """Mark an error as raised by the decision, not by the call."""
    if error.code == HOST_TOOL_ERROR:
        error.details["origin"] = "decision"


def _make_malformed_error(message: str, request: ApprovalRequest) -> CodeModeProtocolError:
    details = {"origin": "decision", "tool_name": request.tool_name, "tool_call_id": request.tool_call_id}
    return CodeModeProtocolError(message, details=details)


def make_denial_error(
    request: ApprovalRequest, decision: ApprovalDecision, policy: ApprovalPolicy
) -> CodeModeToolApprovalDeniedError:
    """Return the error for a denied call. The guest sees its message, so it has the reason only if allowed."""
    message = f"approval of tool {request.tool_name!r} was denied"
    if policy.show_denial_reason and decision.reason:
        message += f": {decision.reason}"
    error = CodeModeToolApprovalDeniedError(
        message,
        details={
            "tool_name": request.tool_name,
            "tool_call_id": request.tool_call_id,
            **({"reason": decision.reason} if decision.reason is not None else {}),
        },
    )
    error.reason = "approval_denied"
    return error
