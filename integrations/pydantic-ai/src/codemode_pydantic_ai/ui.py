"""Paused programs behind an adapter for browsers. Knows no protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai.ui import UIAdapter

from codemode import Interrupt


class PausedPrograms(UIAdapter[Any, Any, Any, Any, Any]):
    """Beside an adapter, keeps the call of codeMode where a client answers the calls that wait inside it.

    ``class Chat(PausedPrograms, VercelAIAdapter): ...``. Any adapter goes on with a paused program; without this it
    warns that the history of a client that keeps the messages itself ends with a call that nobody has answered.
    """

    def sanitize_messages(
        self, messages: Sequence[ModelMessage], *, deferred_tool_results: DeferredToolResults | None = None
    ) -> list[ModelMessage]:
        """Do what the adapter does, and count a paused program as answered where one of its calls is."""
        if deferred_tool_results is not None:
            answered_ids = [*deferred_tool_results.approvals, *deferred_tool_results.calls]
            outer_ids = {outer_id for outer_id in map(Interrupt.find_outer_id, answered_ids) if outer_id is not None}
            # The framework looks at the ids alone; what the answers are is for the run.
            approvals = {**dict.fromkeys(outer_ids, True), **deferred_tool_results.approvals}
            deferred_tool_results = replace(deferred_tool_results, approvals=approvals)
        return super().sanitize_messages(messages, deferred_tool_results=deferred_tool_results)
