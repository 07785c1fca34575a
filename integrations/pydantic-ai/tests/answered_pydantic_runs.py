"""Runs of an agent that are cut off after a person's first answer, and made again with that answer.

A row is one run: the form of the answer (those of `DeferredToolResults`, and ``answer``, which is for agents without
the capability), what is kept (``journal``, ``guard`` or ``key``) and the tool in which it is cut off.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, TypeAlias

from codemode_pydantic_ai import CodeMode, answer, create_code_mode_tool
from cut_off import PROGRAM, StoredCase, be_killed, come_back_to_all, usual
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

Row: TypeAlias = tuple[str, str, str]
FORMS: dict[str, Any] = {
    "true": True,
    "approved": ToolApproved(),
    "edited": ToolApproved(override_args={"order": "a", "cents": 3}),
    "answer": True,
}
ROWS: list[Row] = usual(itertools.product(FORMS, ["journal", "guard", "key"], ["refund", "look"]))


class Run(StoredCase):
    """The run of a row in one host."""

    @property
    def _agent(self) -> Any:
        async def refund(order: str, cents: int = 5) -> str:
            await self.shop.did("refund", f"refund {order}")
            return f"refunded {order}"

        async def look() -> str:
            await self.shop.did("look", "look")
            return "seen"

        tools: Any = [Tool(refund, requires_approval=True), Tool(look, metadata={"readOnlyHint": True})]
        options: Any = {"continuation": self.continuation}
        output: Any = [str, DeferredToolRequests]
        if self.form == "answer":
            return Agent(FunctionModel(_says), tools=[create_code_mode_tool(tools, options)], output_type=output)
        return Agent(FunctionModel(_says), tools=tools, capabilities=[CodeMode(options)], output_type=output)

    def _waiting(self, output: DeferredToolRequests) -> tuple[str, str]:
        """The id of the one call that waits, and what is asked, in a word."""
        if self.form == "answer":
            ((one,),) = [output.metadata[call.tool_call_id]["codemode"]["requests"] for call in output.approvals]
            call_id, args, is_unknown = one["toolCallId"], one["args"], one["kind"] == "code-mode/unknown-outcome"
        else:
            (call,) = output.approvals
            call_id, args = call.tool_call_id, call.args
            is_unknown = output.metadata.get(call_id) == {"unknown_outcome": True}
        return call_id, f"{'unknown: ' if is_unknown else ''}refund {args['order']}"

    async def _answered(self, history: Any, requests: DeferredToolRequests, call_id: str, given: Any) -> Any:
        if self.form == "answer":
            results = answer(requests, {call_id: given})
        elif isinstance(given, str):
            results = DeferredToolResults(calls={call_id: given})
        else:
            results = DeferredToolResults(approvals={call_id: given})
        return await self._agent.run(message_history=history, deferred_tool_results=results, conversation_id="chat")

    async def begin(self) -> asyncio.Task[Any]:
        """Approve the first refund, and run until it is cut off."""
        paused = await self._agent.run("go", conversation_id="chat")
        call_id, _ = self._waiting(paused.output)
        kept = {"history": paused.all_messages_json().decode(), "metadata": paused.output.metadata, "id": call_id}
        (self.folder / "kept").write_text(json.dumps(kept))
        return await self.shop.cut_off(self._first())

    async def _first(self) -> Any:
        kept = json.loads((self.folder / "kept").read_text())
        history = ModelMessagesTypeAdapter.validate_json(kept["history"])
        calls = [part for part in history[-1].parts if isinstance(part, ToolCallPart)]
        requests = DeferredToolRequests(approvals=calls, metadata=kept["metadata"])
        return await self._answered(history, requests, kept["id"], FORMS[self.form])

    async def come_back(self) -> dict[str, Any]:
        """Make the run again, twice, and answer to its end."""
        await self._first()
        run, asked = await self._first(), list[str]()
        happened = self.shop.effects()
        while isinstance(run.output, DeferredToolRequests):
            call_id, question = self._waiting(run.output)
            asked.append(question)
            given = "refunded a" if question.startswith("unknown") else True
            run = await self._answered(run.all_messages(), run.output, call_id, given)
        return {"asked": asked, "happened": happened, "done": self.shop.effects(), "told": run.output}


def _says(messages: Any, _info: Any) -> ModelResponse:
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse(parts=[ToolCallPart("codeMode", {"js": PROGRAM}, tool_call_id="call_1")])
    return ModelResponse(parts=[TextPart(str(last.content))])


def runs(folder: Path, number: int) -> list[Run]:
    return [Run(folder, row, number) for row in ROWS]


def main(given: dict[str, Any]) -> Any:
    """Be the host of all runs: the first is killed, the second comes back to them."""
    own = runs(Path(given["folder"]), given["number"])
    return asyncio.run(come_back_to_all(own) if given["number"] else be_killed(own))
