"""Convert the framework's call errors to errors of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRetry, RunCancelled, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from codemode import CodeModeToolApprovalDeniedError, CodeModeToolError
from codemode.plugins import SchemaMismatchError

REPORTED_ERRORS = (ModelRetry, ToolFailed, ToolRetryError, ToolFailedError, ValidationError, RunCancelled)
"""Errors that the framework reports to the model instead of ending the run."""

_MAX_LISTED_ERRORS = 1000


@dataclass(frozen=True)
class ErrorStyle:
    """How a surface reports errors of nested calls. A code of None means the code of the error class.

    ``omits_details``: programs can read details, which would only repeat what they know. ``includes_tool_name``: a
    pause includes the framework's tool name, because programs use another one.
    """

    denied_code: str | None = None
    invalid_input_code: str | None = None
    omits_details: bool = False
    includes_tool_name: bool = False

    def make_denied_error(self, call: ToolCallPart, message: str) -> CodeModeToolApprovalDeniedError:
        """Return the error of a denied call."""
        details = self._make_details(call, reason=message)
        return CodeModeToolApprovalDeniedError(message, code=self.denied_code, details=details)

    def make_failed_error(
        self, call: ToolCallPart, message: str, *, is_invalid_input: bool = False
    ) -> CodeModeToolError:
        """Return the error of a failed call; with ``is_invalid_input`` it did not run."""
        return CodeModeToolError(
            message, code=self.invalid_input_code if is_invalid_input else None, details=self._make_details(call)
        )

    def _make_details(self, call: ToolCallPart, **extra: Any) -> dict[str, Any]:
        if self.omits_details:
            return {}
        return {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id, **extra}


DEFAULT_ERROR_STYLE = ErrorStyle()


def format_error(error: Exception) -> str:
    """Return the text of a reported error, as a model would read it."""
    if isinstance(error, ValidationError):
        return _format_validation_error(error)
    if isinstance(error, RunCancelled):
        return f"The sub-agent run was cancelled: {error}"
    if isinstance(error, ModelRetry | ToolFailed):
        return _get_response_text(ToolReturnPart("", error.message, tool_call_id="", outcome="failed"))
    part = error.tool_retry if isinstance(error, ToolRetryError) else None
    if isinstance(error, ToolFailedError):
        part = error.tool_failed
    return _get_response_text(part) if isinstance(part, ToolReturnPart) else str(error)


def _get_response_text(part: ToolReturnPart) -> str:
    return part.model_response_str(wrap_if_error=False)


def _format_validation_error(error: ValidationError) -> str:
    count = error.error_count()
    if count > _MAX_LISTED_ERRORS:
        # A program can cause half a million errors, and pydantic cannot list only the first ones.
        return f"Invalid input: {count} validation errors."
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first_failures = SchemaMismatchError.format_first_failures((problem["loc"], problem["msg"]) for problem in problems)
    return f"Invalid input: {first_failures}"
