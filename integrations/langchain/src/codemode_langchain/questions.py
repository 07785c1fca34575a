"""What people are asked during one outer call, and what becomes of their answers. Asks nobody itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codemode import Interrupt, PendingRequest

from .answers import shown_digest
from .approvals import Approvals, Question, resolution_of
from .callers import Caller
from .graph import digest
from .nested import BEGUN_KIND
from .outer_calls import OuterCall
from .scratchpads import Answer
from .unknown_outcomes import is_unknown, known_outcome, unknown_call, unknown_program

Batch = tuple[Answer, ...]


class Questions:
    """The questions of one outer call, each known by its key, which is the same whenever the node runs again.

    A nested call that waits for several answers is one request of the core and several questions here.
    """

    def __init__(self, approvals: Approvals, call: OuterCall, caller: Caller | None = None) -> None:
        self._approvals = approvals
        self._call = call
        self._caller = caller
        self._answers: dict[str, Any] = {}
        self._handed_over: set[str] = set()
        self._inside: dict[str, tuple[Batch, ...]] = {}
        self._responses: dict[str, str] = {}
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._is_stopped = False
        self._names: dict[str, str] = {}

    def of(self, interrupt: Interrupt) -> list[Question]:
        """Return all that people are asked while a program is paused."""
        begun = [one for one in interrupt.requests if one.payload.get("kind") == BEGUN_KIND]
        # One question for all calls that came first: it is about the program.
        unknown = [unknown_program(begun[0].interrupt_id, one, self._call) for one in begun]
        others = [one for one in interrupt.requests if one not in begun]
        return [*unknown, *(question for request in others for question in self._of_request(request))]

    def _of_request(self, request: PendingRequest) -> list[Question]:
        if request.is_approval:
            name = self._names.get(request.tool_call_id) or self._call.shown_name(request.tool_name)
            tool = self._call.tool_named(request.tool_name) or self._call.tool_named(name)
            return [self._approvals.question(request, tool, name, self._caller)]
        if is_unknown(request):
            return [unknown_call(request, self._call)]
        asked = self._asked.get(request.tool_call_id)
        if asked is None:
            return [Question(key=request.interrupt_id, request=request, value=dict(request.payload))]
        return [
            Question(
                key=request.interrupt_id if asked["is_own"] else self._key_of(request.tool_call_id, one["id"]),
                request=request,
                value=one["value"],
                response_schema=one["response_schema"],
                inside=one["id"],
            )
            for one in asked["questions"]
        ]

    def _key_of(self, call_id: str, inside: str) -> str:
        """Name a question that a graph inside a call asks: as before while it waits, anew after a wrong answer."""
        key = f"{call_id}:{inside}"
        while key in self._handed_over:
            key += "+"
        return key

    # --- answers ---

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Take answers, by the keys of the questions."""
        self._answers.update(answers)

    def is_answered(self, question: Question) -> bool:
        """Tell whether somebody has answered."""
        return question.key in self._answers

    def answers_to(self, questions: Iterable[Question]) -> dict[str, Any]:
        """Return the answers, by key."""
        return {one.key: self._answers[one.key] for one in questions}

    def digests(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return what tells one answer from another, by key."""
        return {one.key: digest(self._answers[one.key]) for one in questions}

    def resolutions(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return what the core takes for the answers, by request id."""
        found: dict[str, Any] = {}
        for one in questions:
            if one.request.is_approval:
                found[one.request.interrupt_id] = resolution_of(self._answers[one.key])
            elif is_unknown(one.request):
                found[one.request.interrupt_id] = known_outcome(self._answers[one.key])
            else:
                # The answer itself reaches the tool through LangGraph; the core only tells one answer from another.
                given = found.setdefault(one.request.interrupt_id, {"answers": {}})
                given["answers"][one.key] = digest(self._answers[one.key])
        return found

    # --- what nested calls know of them ---

    def is_stopped(self, questions: Sequence[Question]) -> bool:
        """Tell whether a person does not want a program of unknown outcome to run again."""
        answers = [self._answers[one.key] for one in questions if one.request.payload.get("kind") == BEGUN_KIND]
        return self._is_stopped or any(answer["type"] == "reject" for answer in answers)

    def handed_over(self, questions: Sequence[Question]) -> tuple[dict[str, tuple[Batch, ...]], dict[str, str]]:
        """Return the answers inside calls, in batches, and those given in a call's place, by the call's id."""
        inside, responses = dict(self._inside), dict(self._responses)
        batches: dict[str, list[Answer]] = {}
        for one in questions:
            call_id, answer = one.request.tool_call_id, self._answers[one.key]
            asked = self._asked.get(call_id)
            if one.request.is_approval:
                if answer["type"] == "respond":
                    responses[call_id] = answer["message"]
            elif asked is not None and not is_unknown(one.request):
                batches.setdefault(call_id, []).append(
                    Answer(value=answer, is_own=asked["is_own"], inside=one.inside, shown=shown_digest(one.value))
                )
        for call_id, batch in batches.items():
            inside[call_id] = (*_given_before(self._asked[call_id], inside.get(call_id, ())), tuple(batch))
        return inside, responses

    def newly_answered(self, questions: Iterable[Question]) -> frozenset[str]:
        """Return the ids of the calls inside which something was asked that these questions answer."""
        inside = (one.request for one in questions if not one.request.is_approval and not is_unknown(one.request))
        return frozenset(one.tool_call_id for one in inside if one.tool_call_id in self._asked)

    def take(
        self,
        questions: Sequence[Question],
        asked: Mapping[str, Mapping[str, Any]],
        names: Mapping[str, str],
    ) -> None:
        """Note that a segment was given these answers, what calls asked in it, and what their tools are called."""
        self._names.update(names)
        self._inside, self._responses = self.handed_over(questions)
        self._is_stopped = self.is_stopped(questions)
        self._handed_over.update(one.key for one in questions)
        self._asked.update(asked)


def _given_before(asked: Mapping[str, Any], known: Sequence[Batch]) -> Sequence[Batch]:
    """Return what a call was answered before it asked this: by answers to another outer call, too."""
    given: Any = asked.get("given")
    if given is None:
        return known[: asked["answers"]]
    return [tuple(Answer(**one) for one in batch) for batch in given]
