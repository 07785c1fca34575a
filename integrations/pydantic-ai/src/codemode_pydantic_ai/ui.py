"""Keep paused programs in the history of UI adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai.ui import UIAdapter

from codemode import Interrupt


class PausedProgramsMixin(UIAdapter[Any, Any, Any, Any, Any]):
    """Adapter mixin that keeps the codeMode call when a client answers its nested calls.

    ``class Chat(PausedProgramsMixin, VercelAIAdapter): ...``. Any adapter can resume a paused program; without
    this mixin it warns that a client-side history ends with an unanswered call.
    """

    def sanitize_messages(
        self, messages: Sequence[ModelMessage], *, deferred_tool_results: DeferredToolResults | None = None
    ) -> list[ModelMessage]:
        """Do what the adapter does, and count a paused program as answered if one of its calls is."""
        if deferred_tool_results is not None:
            answered_ids = [*deferred_tool_results.approvals, *deferred_tool_results.calls]
            outer_ids = {outer_id for outer_id in map(Interrupt.find_outer_id, answered_ids) if outer_id is not None}
            # The framework compares ids only; the run reads the answers.
            approvals = {**dict.fromkeys(outer_ids, True), **deferred_tool_results.approvals}
            deferred_tool_results = replace(deferred_tool_results, approvals=approvals)
        return super().sanitize_messages(messages, deferred_tool_results=deferred_tool_results)
