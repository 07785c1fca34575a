"""What people are asked during one outer call, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Protocol, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, create_model

from codemode import CallContext, Interrupt, MediaContent, PendingRequest
from codemode.plugins import PreparedTool, protect_integers, restore_integers

from .answers import shown_digest
from .approvals import Approvals, Caller, DecisionType, Question, decision_type, resolution_of
from .graph import digest
from .nested import BEGUN_KIND, Answer


class OuterCall(Protocol):
    """What is performed."""

    @property
    def name(self) -> str:
        """The name of the tool that the model called."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the model called it with."""
        ...

    @property
    def program(self) -> str:
        """The program among the arguments; nothing where there is none."""
        ...

    @property
    def is_journaled(self) -> bool:
        """True where its nested calls are kept in a journal."""
        ...

    @property
    def goes_on(self) -> bool:
        """True where it goes on with a program that an earlier call has begun."""
        ...

    def tool_named(self, name: str) -> PreparedTool | None:
        """Return an inner tool, as it is now."""
        ...

    def shown_name(self, name: str) -> str:
        """Return what people know a tool by that programs call by this name."""
        ...

    def start(self, call: CallContext) -> Any:
        """Return the answer, or the `Interrupt` of a pause; it may block."""
        ...

    async def astart(self, call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Go on with a pause. Returns as `start` does."""
        ...

    async def ago_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def shown(self, answer: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:
        """Return what the model is given for an answer: plain JSON, and the images, audio and files beside it."""
        ...


_NOT_DONE = "a person says that this call failed"


def is_unknown(request: PendingRequest) -> bool:
    """Tell whether a request is about one call that had begun, and of which nobody knows how it ended."""
    return request.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME


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
    schema = decision_type(name, allowed)
    return Question(key=key, request=request, value=protect_integers(value), response_schema=schema)


_OWN = ("tool_approval", "unknown_outcome")


def batched(questions: Sequence[Question]) -> list[Question]:
    """Return the questions with all that ask about calls in one, last; its ``members`` are those.

    What a tool asks in another shape stays by itself.
    """
    members = tuple(one for one in questions if _actions_of(one))
    if not members:
        return [*questions]
    shown = [_exact(one) for one in members]
    value = {
        "action_requests": [action for one in shown for action in one["action_requests"]],
        "review_configs": [config for one in shown for config in one["review_configs"]],
    }
    together = Question(
        key=f"batch:{digest([one.key for one in members])}",
        request=members[0].request,
        value=protect_integers(value),
        response_schema=_decisions(members),
        members=members,
    )
    return [*(one for one in questions if one not in members), together]


def taken_apart(asked: Iterable[Question], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers by the keys of single questions, of answers by the keys of what was asked."""
    found: dict[str, Any] = {}
    for one in asked:
        if one.key not in answers:
            continue
        if not one.members:
            found[one.key] = answers[one.key]
            continue
        left = list(answers[one.key]["decisions"])
        for member in one.members:
            count = len(_actions_of(member))
            mine, left = left[:count], left[count:]
            found[member.key] = mine[0] if _is_own(member) else {"decisions": mine}
    return found


def waiting_of(asked: Iterable[Question], waiting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what waits by the keys of single questions, of what waits by the keys of what was asked."""
    return {
        key: waiting[one.key]
        for one in asked
        if one.key in waiting
        for key in ([member.key for member in one.members] or [one.key])
    }


def _actions_of(question: Question) -> list[Any]:
    """Return the calls that a question is about, with a review for each; none of a question of another shape."""
    value: Any = question.value
    if not isinstance(value, dict):
        return []
    actions, configs = (cast("dict[str, Any]", value).get(key) for key in ("action_requests", "review_configs"))
    if not isinstance(actions, list) or not isinstance(configs, list):
        return []
    asked, reviews = cast("list[Any]", actions), cast("list[Any]", configs)
    # What a tool asks may look like anything: one review too few, and those of all later calls would be another's.
    is_whole = len(asked) == len(reviews) and all(isinstance(one, dict) for one in [*asked, *reviews])
    return asked if is_whole else []


def _is_own(question: Question) -> bool:
    """Tell whether the question was worded here, or by a codeMode inside; what else a tool asks is no decision."""
    return question.response_schema is not None and question.value.get("type") in _OWN


def _exact(question: Question) -> dict[str, Any]:
    value = cast("dict[str, Any]", question.value)
    return restore_integers(value) if _is_own(question) and "bigIntegers" in value else value


def _decisions(members: Sequence[Question]) -> Any:
    """Return the type of an answer: one decision for each call, in their order."""
    each = [one.response_schema if _is_own(one) else dict[str, Any] for one in members for _ in _actions_of(one)]
    in_order: Any = cast("Any", tuple).__class_getitem__(tuple(each))
    response = create_model("HITLResponse", decisions=(in_order, ...))
    return Annotated[response, BeforeValidator(partial(_many, len(each))), AfterValidator(_plain)]


def _many(count: int, answer: Any) -> Any:
    if count == 1 and isinstance(answer, Mapping) and "type" in answer:
        return {"decisions": [cast("Any", answer)]}  # as one call is answered where each asks by itself
    if not isinstance(answer, Mapping | BaseModel):
        raise ValueError('an answer is {"decisions": [...]}, one for each call')  # noqa: TRY004 - pydantic reports those
    return cast("Any", answer)


def _plain(response: BaseModel) -> dict[str, Any]:
    return {"decisions": [*cast("Any", response).decisions]}


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
