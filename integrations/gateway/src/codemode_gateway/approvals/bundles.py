"""All that waits at one time, as questions; and what people have said of it, as resolutions. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from codemode.data.json_shape import weigh
from codemode.errors import CodeModeProtocolError, CodeModeToolError
from codemode.host.threads import run_check
from codemode.interrupts.interrupt import PendingRequest
from codemode.stores.records import Record, StoredRequest

from ..gateway.principals import Principal
from .keeping import waiting_in
from .known_tools import definition_in
from .legs import Before, Leg, Pause
from .questions import Question, kind_of
from .reading import Answered, AskAgain, read_answer
from .remembered import KnownTool, Remembered
from .resuming import RunsOf

_ENOUGH = 1 << 20


@dataclass
class Said:
    """What people have said of one bundle. ``left``: somebody was asked what became of a call, and did not say."""

    resolutions: dict[str, Any] = field(default_factory=dict[str, Any])
    remembered: list[KnownTool] = field(default_factory=list[KnownTool])
    left: bool = False


class Bundles:
    """Makes questions of what waits and reads what is answered, for one principal."""

    def __init__(self, runs: RunsOf, remembered: Remembered, principal: Principal) -> None:
        self._runs = runs
        self._remembered = remembered
        self._principal = principal

    def questions(self, pause: Pause, before: Before | None = None) -> list[Question]:
        """Return what is to be asked, with what is known of each from the requests ``before``."""
        told = before or {}
        if isinstance(pause, Record):
            kept = [(one, definition_in(pause, one.interrupt_id)) for one in waiting_in(pause)]
            return [self._question(one, one.kind, definition, told) for one, definition in kept]
        return [self._question(one, one.payload.get("kind"), self._shown(one), told) for one in pause.requests]

    def servers(self, record: Record) -> set[str]:
        """Return the servers about whose calls a run asks, or has asked."""
        return {self._server(one.tool_name.partition(".")[0]) for one in record.requests}

    async def read(self, leg: Leg, questions: list[Question], responses: Mapping[str, Any]) -> Said:
        """Read the responses to these questions, and remember what holds for longer. Those without one are left out."""
        said = Said()
        for question in questions:
            response = responses.get(question.interrupt_id)
            if response is None:
                continue
            read = partial(read_answer, question, response, partial(self._problem, question))
            answer = await run_check(weigh(getattr(response, "content", None), _ENOUGH), read)
            if answer is None:
                said.left = True
            elif isinstance(answer, AskAgain):
                leg.note(question.interrupt_id, problem=answer.problem, tries=question.tries + 1)
            else:
                said.resolutions[question.interrupt_id] = answer.resolution
                await self._remember(leg, question, answer, said)
        return said

    async def forget(self, said: Said) -> None:
        """Take back what was remembered of answers that were refused."""
        for known in said.remembered:
            await self._remembered.forget(self._principal, known)

    async def _remember(self, leg: Leg, question: Question, answer: Answered, said: Said) -> None:
        if answer.scope is None or question.definition is None:
            return
        if answer.scope == "session" and not leg.facts.has_session:
            return  # it would hold for all clients of this user, for as long as the gateway runs
        known = KnownTool(question.server, question.tool, question.definition)
        if not await self._remembered.allows(self._principal, known):
            await self._remembered.remember(self._principal, known, answer.scope)
            said.remembered.append(known)

    def _question(
        self, request: PendingRequest | StoredRequest, kind: Any, definition: Any, before: Before
    ) -> Question:
        path, _, tool = request.tool_name.partition(".")
        said = before.get(request.interrupt_id, {})
        known = said.get("definition", definition)
        problem, tries = said.get("problem"), said.get("tries", 0)
        return Question(
            interrupt_id=request.interrupt_id,
            kind=kind_of(kind),
            tool_name=request.tool_name,
            server=self._server(path),
            tool=tool,
            input=request.input,
            payload=request.payload,
            line=request.line,
            definition=known if isinstance(known, str) else None,
            problem=problem if isinstance(problem, str) else None,
            tries=tries if type(tries) is int else 0,
        )

    def _server(self, path: str) -> str:
        listed = self._runs.catalog.server(path)
        return path if listed is None else listed.server_id

    def _shown(self, request: PendingRequest) -> str | None:
        known = self._remembered.shown(request.tool_call_id)
        return None if known is None else known.definition

    def _problem(self, question: Question, edited: Any) -> str | None:
        """Say what is wrong with an edit, as far as the tools are known here; the resume looks again."""
        tool = self._runs.catalog.get(question.tool_name)
        if tool is None:
            return None
        try:
            tool.validate_input(edited)
        except CodeModeToolError as error:
            return error.message
        return None

    def blame(self, leg: Leg, said: Said, error: CodeModeProtocolError) -> bool:
        """Say of each edit that it was refused; False where none was made, or the fault is another."""
        edited = [key for key, one in said.resolutions.items() if "input" in one]
        if error.details.get("superseded") or error.details.get("not_resumable"):
            return False
        for key in edited:
            leg.note(key, problem=error.message, tries=int(leg.said.get(key, {}).get("tries", 0)) + 1)
        return bool(edited)
