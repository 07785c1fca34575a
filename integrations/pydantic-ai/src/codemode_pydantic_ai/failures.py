"""What a program is told of a nested call that failed as the framework lets calls fail. Counts no retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRetry, RunCancelled, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from codemode import CodeModeToolApprovalDeniedError, CodeModeToolError
from codemode.plugins import SchemaMismatch

TOLD = (ModelRetry, ToolFailed, ToolRetryError, ToolFailedError, ValidationError, RunCancelled)
"""What the framework tells a model of, instead of ending the run."""

_MAX_LISTED_ERRORS = 1000


@dataclass(frozen=True)
class ErrorWords:
    """The errors of nested calls in the words of a surface. The codes are None where it has those of the classes.

    ``shows_details``: a program of the surface may read them, so they say nothing that it knows already.
    ``names_tools``: programs have other names for tools than the framework, so a pause says the framework's.
    """

    denied: str | None = None
    wrong_input: str | None = None
    shows_details: bool = False
    names_tools: bool = False

    def denial(self, call: ToolCallPart, message: str) -> CodeModeToolApprovalDeniedError:
        """Return the error of a call that somebody denied."""
        details = self._details(call, reason=message)
        return CodeModeToolApprovalDeniedError(message, code=self.denied, details=details)

    def failure(self, call: ToolCallPart, message: str, *, is_refused: bool = False) -> CodeModeToolError:
        """Return the error of a call that failed. ``is_refused``: its input was wrong, and it did not run."""
        return CodeModeToolError(message, code=self.wrong_input if is_refused else None, details=self._details(call))

    def _details(self, call: ToolCallPart, **more: Any) -> dict[str, Any]:
        if self.shows_details:
            return {}
        return {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id, **more}


OWN_WORDS = ErrorWords()


def told(error: Exception) -> str:
    """Return the text of one of these, as a model would have read it."""
    if isinstance(error, ValidationError):
        return _problems(error)
    if isinstance(error, RunCancelled):
        return f"The sub-agent run was cancelled: {error}"
    if isinstance(error, ModelRetry | ToolFailed):
        return _text(ToolReturnPart("", error.message, tool_call_id="", outcome="failed"))
    part = error.tool_retry if isinstance(error, ToolRetryError) else None
    if isinstance(error, ToolFailedError):
        part = error.tool_failed
    return _text(part) if isinstance(part, ToolReturnPart) else str(error)


def _text(part: ToolReturnPart) -> str:
    return part.model_response_str(wrap_if_error=False)


def _problems(error: ValidationError) -> str:
    count = error.error_count()
    if count > _MAX_LISTED_ERRORS:
        # A program can cause half a million of them, and pydantic cannot list only the first.
        return f"Invalid input: {count} validation errors."
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return f"Invalid input: {SchemaMismatch.describe((one['loc'], one['msg']) for one in found)}"
