"""A paused program together with what it was answered, verified and validated. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..data.records import record
from ..errors import CodeModeProtocolError
from ..interrupts.interrupt import Interrupt
from ..interrupts.resolutions import Answer, runs_tool
from ..protocol.continuation import Continuation
from ..tools.catalog import MAX_NAME_CHARACTERS, ToolCatalog
from ..tools.prepared import PreparedTool
from .allowed_input import CheckedInput


@record
class AnsweredPause:
    """A pause and its answers. ``inputs`` are what answered calls run with; both are by request id."""

    interrupt: Interrupt
    continuation: Continuation
    answers: Mapping[int, Answer]
    inputs: Mapping[int, CheckedInput]

    def require_tools(self, catalog: ToolCatalog[PreparedTool]) -> None:
        """Raise `CodeModeProtocolError` where an answer lets a tool run that this host lacks, of a pause in a store.

        Another host may have it, and the answer must not be used up here. Whoever has a pause in hand has no other
        host: its program is told that there is no such tool.
        """
        if not self.interrupt.is_stored:
            return
        for request_id, answer in self.answers.items():
            entry = self.continuation.ledger[request_id]
            if entry.kind != "tool" or not runs_tool(answer):
                continue
            tool = catalog.get(entry.name)
            if tool is None or tool.execute is None:
                name = entry.name[:MAX_NAME_CHARACTERS]
                raise CodeModeProtocolError(
                    f"this host cannot run the tool {name!r}, whose call was allowed: a host that has it can go on",
                    details={"not_resumable": True, "tool_name": name},
                )
