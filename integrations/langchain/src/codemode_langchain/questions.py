"""Create the questions of one outer call, and convert their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Protocol, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, create_model

from codemode import CallContext, Interrupt, MediaContent, PendingRequest
from codemode.plugins import PreparedTool, protect_integers, restore_integers

from .answer_matching import compute_display_digest
from .approvals import ApprovalPolicy, DecisionType, Question, ToolCaller, make_decision_type, to_resolution
from .nested import STARTED_EARLIER_KIND, InterruptAnswer
from .node_tasks import compute_digest


class OuterCall(Protocol):
    """One outer call of a surface tool."""

    @property
    def name(self) -> str:
        """The name of the called tool."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The model's arguments."""
        ...

    @property
    def program(self) -> str:
        """The program in the arguments, or ""."""
        ...

    @property
    def is_journaled(self) -> bool:
        """True if its nested calls are journaled."""
        ...

    @property
    def continues_program(self) -> bool:
        """True if it continues a program that an earlier call started."""
        ...

    def find_tool(self, name: str) -> PreparedTool | None:
        """Return a program tool by name, or None."""
        ...

    def get_display_name(self, name: str) -> str:
        """Return the displayed name of a program tool."""
        ...

    def start(self, call: CallContext) -> Any:
        """Return the result, or the `Interrupt` of a pause; may block."""
        ...

    async def astart(self, call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Resume a pause. Returns as `start` does."""
        ...

    async def aresume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def to_model_parts(self, result: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:
        """Return a result as the model gets it: plain JSON, and media."""
        ...


_FAILED_MESSAGE = "a person says that this call failed"


def asks_for_outcome(request: PendingRequest) -> bool:
    """Return whether a request is about a call of unknown outcome."""
    return request.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME


def make_outcome_question(request: PendingRequest, call: OuterCall) -> Question:
    """Return the question about a journaled call of unknown outcome."""
    name, has_value = call.get_display_name(request.tool_name), call.find_tool(request.tool_name) is not None
    input_value: Any = request.input
    arguments = cast("Any", input_value) if isinstance(input_value, dict) else {"input": input_value}
    description = (
        "Unknown outcome: the process that made this call ended before it returned. Approve to run it again, reject to"
        " make it fail in the program"
        f"{', or respond with its result if it ran' if has_value else ''}.\n\nTool: {name}\nArgs: {arguments}"
    )
    allowed_decisions: tuple[DecisionType, ...] = (
        ("approve", "reject", "respond") if has_value else ("approve", "reject")
    )
    value = {"type": "unknown_outcome", "tool_call_id": request.tool_call_id}
    return _make_decision_question(
        request.interrupt_id, request, value, name, arguments, description, allowed_decisions
    )


def make_lost_program_question(key: str, request: PendingRequest, call: OuterCall) -> Question:
    """Return the question about a program whose process ended without a journal."""
    arguments = dict(call.arguments)
    description = (
        "Unknown outcome: this program was interrupted because its process ended or its run was cancelled. Calls of its"
        " tools may have run. Approve to run it again from its last pause, including these calls.\n\n"
        f"Program:\n{call.program or arguments}"
    )
    value = {"type": "unknown_outcome"}
    return _make_decision_question(key, request, value, call.name, arguments, description, ("approve", "reject"))


def to_outcome_resolution(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the core's resolution for a decision about a call of unknown outcome."""
    if decision["type"] == "reject":
        return {"error": {"message": decision.get("message") or _FAILED_MESSAGE}}
    return {"value": decision["message"]} if decision["type"] == "respond" else {"runAgain": True}


def _make_decision_question(
    key: str,
    request: PendingRequest,
    value: dict[str, Any],
    name: str,
    arguments: Any,
    description: str,
    allowed_decisions: tuple[DecisionType, ...],
) -> Question:
    action = {"name": name, "args": arguments, "description": description}
    value |= {
        **action,
        "action_requests": [action],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed_decisions)}],
    }
    schema = make_decision_type(name, allowed_decisions)
    return Question(key=key, request=request, value=protect_integers(value), response_schema=schema)


_OWN_QUESTION_TYPES = ("tool_approval", "unknown_outcome")


def batch_questions(questions: Sequence[Question]) -> list[Question]:
    """Combine the questions about calls into one, which comes last with them as ``members``.

    Questions of tools with another shape stay separate.
    """
    members = tuple(question for question in questions if _get_reviewed_actions(question))
    if not members:
        return [*questions]
    displayed_values = [_restore_exact_value(question) for question in members]
    value = {
        "action_requests": [action for question in displayed_values for action in question["action_requests"]],
        "review_configs": [config for question in displayed_values for config in question["review_configs"]],
    }
    batch_question = Question(
        key=f"batch:{compute_digest([question.key for question in members])}",
        request=members[0].request,
        value=protect_integers(value),
        response_schema=_make_batch_answer_type(members),
        members=members,
    )
    return [*(question for question in questions if question not in members), batch_question]


def split_batch_answers(asked_questions: Iterable[Question], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Split the answers to batches: return answers by the keys of single questions."""
    answers_by_key: dict[str, Any] = {}
    for question in asked_questions:
        if question.key not in answers:
            continue
        if not question.members:
            answers_by_key[question.key] = answers[question.key]
            continue
        decisions = list(answers[question.key]["decisions"])
        for member in question.members:
            count = len(_get_reviewed_actions(member))
            batch_decisions, decisions = decisions[:count], decisions[count:]
            answers_by_key[member.key] = (
                batch_decisions[0] if _is_decision_question(member) else {"decisions": batch_decisions}
            )
    return answers_by_key


def assign_batch_interrupts_to_members(
    asked_questions: Iterable[Question], interrupts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the pending interrupts by the keys of single questions."""
    return {
        key: interrupts[question.key]
        for question in asked_questions
        if question.key in interrupts
        for key in ([member.key for member in question.members] or [question.key])
    }


def _get_reviewed_actions(question: Question) -> list[Any]:
    """Return the calls of a question that has a review for each; none for a question of another shape."""
    value: Any = question.value
    if not isinstance(value, dict):
        return []
    actions, configs = (cast("dict[str, Any]", value).get(key) for key in ("action_requests", "review_configs"))
    if not isinstance(actions, list) or not isinstance(configs, list):
        return []
    action_list, review_list = cast("list[Any]", actions), cast("list[Any]", configs)
    # A tool's question may be malformed: a missing review would shift those of later calls.
    is_well_formed = len(action_list) == len(review_list) and all(
        isinstance(item, dict) for item in [*action_list, *review_list]
    )
    return action_list if is_well_formed else []


def _is_decision_question(question: Question) -> bool:
    """Return whether a question asks for a decision: created here or by a codeMode tool inside a call."""
    return question.response_schema is not None and question.value.get("type") in _OWN_QUESTION_TYPES


def _restore_exact_value(question: Question) -> dict[str, Any]:
    value = cast("dict[str, Any]", question.value)
    return restore_integers(value) if _is_decision_question(question) and "bigIntegers" in value else value


def _make_batch_answer_type(members: Sequence[Question]) -> Any:
    """Return the type of a batch answer: one decision per call, in order."""
    decision_types = [
        question.response_schema if _is_decision_question(question) else dict[str, Any]
        for question in members
        for _ in _get_reviewed_actions(question)
    ]
    decisions_type: Any = cast("Any", tuple).__class_getitem__(tuple(decision_types))
    response = create_model("HITLResponse", decisions=(decisions_type, ...))
    return Annotated[
        response, BeforeValidator(partial(_normalize_decisions, len(decision_types))), AfterValidator(_response_to_dict)
    ]


def _normalize_decisions(count: int, answer: Any) -> Any:
    if count == 1 and isinstance(answer, Mapping) and "type" in answer:
        return {"decisions": [cast("Any", answer)]}  # a single decision, as in "per_call" mode
    if not isinstance(answer, Mapping | BaseModel):
        raise ValueError('an answer is {"decisions": [...]}, one for each call')  # noqa: TRY004 - pydantic reports those
    return cast("Any", answer)


def _response_to_dict(response: BaseModel) -> dict[str, Any]:
    return {"decisions": [*cast("Any", response).decisions]}


AnswerBatch = tuple[InterruptAnswer, ...]


class OuterCallQuestions:
    """The questions of one outer call and their answers. Keys are stable when the node runs again.

    A nested call that waits for several answers is one request of the core and several questions.
    """

    def __init__(self, approvals: ApprovalPolicy, call: OuterCall, caller: ToolCaller | None = None) -> None:
        self._approvals = approvals
        self._call = call
        self._caller = caller
        self._answers: dict[str, Any] = {}
        self._handed_over_keys: set[str] = set()
        self._inner_answers: dict[str, tuple[AnswerBatch, ...]] = {}
        self._responses: dict[str, str] = {}
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._is_stopped = False
        self._display_names: dict[str, str] = {}

    def make_questions(self, interrupt: Interrupt) -> list[Question]:
        """Return the questions of a paused program."""
        start_requests = [
            request for request in interrupt.requests if request.payload.get("kind") == STARTED_EARLIER_KIND
        ]
        # One question for all first calls: it is about the program.
        unknown_questions = [
            make_lost_program_question(start_requests[0].interrupt_id, request, self._call)
            for request in start_requests
        ]
        other_requests = [request for request in interrupt.requests if request not in start_requests]
        return [
            *unknown_questions,
            *(question for request in other_requests for question in self._make_request_questions(request)),
        ]

    def _make_request_questions(self, request: PendingRequest) -> list[Question]:
        if request.is_approval:
            name = self._display_names.get(request.tool_call_id) or self._call.get_display_name(request.tool_name)
            tool = self._call.find_tool(request.tool_name) or self._call.find_tool(name)
            return [self._approvals.make_question(request, tool, name, self._caller)]
        if asks_for_outcome(request):
            return [make_outcome_question(request, self._call)]
        asked_fields = self._asked.get(request.tool_call_id)
        if asked_fields is None:
            return [Question(key=request.interrupt_id, request=request, value=dict(request.payload))]
        return [
            Question(
                key=request.interrupt_id
                if asked_fields["is_own"]
                else self._make_inner_key(request.tool_call_id, question_fields["id"]),
                request=request,
                value=question_fields["value"],
                response_schema=question_fields["response_schema"],
                inside=question_fields["id"],
            )
            for question_fields in asked_fields["questions"]
        ]

    def _make_inner_key(self, call_id: str, inner_interrupt_id: str) -> str:
        """Return the key of a question of a graph inside a call; a new one after an invalid answer."""
        key = f"{call_id}:{inner_interrupt_id}"
        while key in self._handed_over_keys:
            key += "+"
        return key

    # --- answers ---

    def add_answers(self, answers: Mapping[str, Any]) -> None:
        """Add answers by question key."""
        self._answers.update(answers)

    def is_answered(self, question: Question) -> bool:
        """Return whether a question has an answer."""
        return question.key in self._answers

    def get_answers(self, questions: Iterable[Question]) -> dict[str, Any]:
        """Return the answers to questions, by key."""
        return {question.key: self._answers[question.key] for question in questions}

    def compute_answer_digests(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return digests of the answers to questions, by key."""
        return {question.key: compute_digest(self._answers[question.key]) for question in questions}

    def make_resolutions(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the core's resolutions for the answers, by request id."""
        resolutions_by_id: dict[str, Any] = {}
        for question in questions:
            if question.request.is_approval:
                resolutions_by_id[question.request.interrupt_id] = to_resolution(self._answers[question.key])
            elif asks_for_outcome(question.request):
                resolutions_by_id[question.request.interrupt_id] = to_outcome_resolution(self._answers[question.key])
            else:
                # The tool gets the answer through LangGraph; the core gets only its digest.
                entry = resolutions_by_id.setdefault(question.request.interrupt_id, {"answers": {}})
                entry["answers"][question.key] = compute_digest(self._answers[question.key])
        return resolutions_by_id

    # --- for nested calls ---

    def is_rerun_rejected(self, questions: Sequence[Question]) -> bool:
        """Return whether a person rejected that a program of unknown outcome runs again."""
        answers = [
            self._answers[question.key]
            for question in questions
            if question.request.payload.get("kind") == STARTED_EARLIER_KIND
        ]
        return self._is_stopped or any(answer["type"] == "reject" for answer in answers)

    def collect_inner_answers_and_responses(
        self, questions: Sequence[Question]
    ) -> tuple[dict[str, tuple[AnswerBatch, ...]], dict[str, str]]:
        """Return batches of answers to interrupts inside calls, and results given instead of calls, by call id."""
        inner_answers, responses = dict(self._inner_answers), dict(self._responses)
        batches: dict[str, list[InterruptAnswer]] = {}
        for question in questions:
            call_id, answer = question.request.tool_call_id, self._answers[question.key]
            asked_fields = self._asked.get(call_id)
            if question.request.is_approval:
                if answer["type"] == "respond":
                    responses[call_id] = answer["message"]
            elif asked_fields is not None and not asks_for_outcome(question.request):
                batches.setdefault(call_id, []).append(
                    InterruptAnswer(
                        value=answer,
                        is_own=asked_fields["is_own"],
                        inside=question.inside,
                        shown=compute_display_digest(question.value),
                    )
                )
        for call_id, batch in batches.items():
            inner_answers[call_id] = (
                *_get_earlier_answers(self._asked[call_id], inner_answers.get(call_id, ())),
                tuple(batch),
            )
        return inner_answers, responses

    def find_newly_answered_call_ids(self, questions: Iterable[Question]) -> frozenset[str]:
        """Return the ids of calls with interrupts that these questions answer."""
        inner_requests = (
            request.request
            for request in questions
            if not request.request.is_approval and not asks_for_outcome(request.request)
        )
        return frozenset(request.tool_call_id for request in inner_requests if request.tool_call_id in self._asked)

    def record_segment(
        self,
        questions: Sequence[Question],
        asked_questions: Mapping[str, Mapping[str, Any]],
        names: Mapping[str, str],
    ) -> None:
        """Record a segment: the answers it got, the questions of its calls, and displayed tool names."""
        self._display_names.update(names)
        self._inner_answers, self._responses = self.collect_inner_answers_and_responses(questions)
        self._is_stopped = self.is_rerun_rejected(questions)
        self._handed_over_keys.update(question.key for question in questions)
        self._asked.update(asked_questions)


def _get_earlier_answers(questions: Mapping[str, Any], earlier_batches: Sequence[AnswerBatch]) -> Sequence[AnswerBatch]:
    """Return the answers of a call before its current questions, including those to another outer call."""
    given_batches: Any = questions.get("given")
    if given_batches is None:
        return earlier_batches[: questions["answers"]]
    return [tuple(InterruptAnswer(**answer_fields) for answer_fields in batch) for batch in given_batches]
