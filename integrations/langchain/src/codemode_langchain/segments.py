"""Run a program across pauses; segments and answers are stored in the checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

from langchain_core.runnables import RunnableConfig

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolError,
    Interrupt,
    failure_text,
)
from codemode.errors import CodeModeConcurrencyError, CodeModeToolApprovalRequiredError
from codemode.plugins import split_content

from .answer_matching import (
    RunningOuterCallRegistration,
    claim_asking_turn,
    take_or_ask_and_save_answer,
    take_or_ask_and_save_answer_async,
)
from .approvals import ApprovalPolicy, Question, ToolCaller
from .checkpoints import (
    SavedCallOutputs,
    SegmentStartMarker,
    clear_interrupt,
    clear_interrupt_async,
    get_step_time_ms,
    warn_if_graph_cannot_resume,
)
from .content import to_model_block
from .graph_state import make_state_commands
from .langgraph_internals import get_interrupts, is_in_node, raise_interrupts, take_interrupts
from .nested import NestedCalls
from .node_tasks import compute_digest, compute_node_id, compute_task_number, start_task, to_coroutine_function
from .questions import (
    OuterCall,
    OuterCallQuestions,
    assign_batch_interrupts_to_members,
    batch_questions,
    split_batch_answers,
)

_ALREADY_ANSWERED_NOTE = (
    "Continue from the thread's checkpoint after the first answers; repeating the same answers returns the same outcome"
    " and runs nothing."
)
_SIGNING_KEY_NOTE = (
    "to resume a program in another process, that process needs the same signing key: "
    "give options={'continuation': {'keys': ...}} or call codemode.set_continuation_signing_key"
)


@dataclass(frozen=True, kw_only=True)
class SegmentToRun:
    """Run the program to its next pause. Answers to ``questions`` resolve ``interrupt``; None means the start."""

    step: int
    interrupt: Interrupt | None
    questions: tuple[Question, ...]
    calls: NestedCalls


@dataclass(frozen=True, kw_only=True)
class SavedOutputsToLoad:
    """Load the call outputs that earlier processes saved."""

    saved_outputs: SavedCallOutputs


@dataclass(frozen=True, kw_only=True)
class QuestionsToAsk:
    """Ask questions concurrently."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class CollectedAnswers:
    """The available answers, and LangGraph's interrupts for the other questions, by key."""

    answers: Mapping[str, Any]
    waiting: Mapping[str, tuple[Any, ...]]


WorkItem: TypeAlias = SegmentToRun | QuestionsToAsk | SavedOutputsToLoad


@dataclass(frozen=True, kw_only=True)
class ProgramOutcome:
    """The outcome of a program, with commands and artifacts of its nested calls.

    ``text``: the value for the model. ``content``: media blocks. ``artifacts``: all calls, with their artifacts.
    """

    value: Any = None
    text: str = ""
    content: tuple[Mapping[str, Any], ...] = ()
    failure: Mapping[str, Any] | None = None
    commands: tuple[Any, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    error: CodeModeError | None = None


def collect_calls(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return all calls of the records, with their artifacts."""
    calls: dict[str, dict[str, Any]] = {
        call["tool_call_id"]: call for record in records for call in record.get("made", ())
    }
    for call in (call for record in records for call in record["artifacts"]):
        # Calls of earlier processes have only an artifact.
        calls[call["tool_call_id"]] = {**calls.get(call["tool_call_id"], {}), **call}
    return tuple(calls.values())


def make_failure_fields(error: CodeModeError, program: str) -> dict[str, str]:
    """Return the stored fields of a failure; ``text`` is for the model."""
    return {"name": type(error).__name__, "code": error.code, "text": failure_text(error, program)}


def annotate_if_refusal(error: CodeModeError) -> CodeModeError | None:
    """Return an error raised before the program ran, with a note on what to do; None for any other."""
    is_refusal = isinstance(error, CodeModeProtocolError) and not error.calls
    if not is_refusal and not isinstance(error, CodeModeConcurrencyError):
        return None
    is_late = isinstance(error, CodeModeProtocolError) and error.is_pause_already_answered
    error.add_note(f"codemode-langchain: {_ALREADY_ANSWERED_NOTE if is_late else _SIGNING_KEY_NOTE}")
    return error


def get_restart_and_resolutions_or_raise(
    error: CodeModeAbortedError, calls: NestedCalls
) -> tuple[Interrupt, dict[str, Any]]:
    """Return the interrupt and the resolutions that repeat a segment which a lost host started.

    Without a journal its calls are unknown: the `SegmentStartMarker` makes the segment ask before its first call.
    Raises any other error, and that of a segment which also started here.
    """
    recovery = error.recovery
    if Interrupt.find_recovery(error) is not None or not isinstance(recovery, Interrupt) or calls.has_checked_start:
        raise error
    return recovery, {request.interrupt_id: {"runAgain": True} for request in recovery.requests}


def to_message_text(value: Any) -> str:
    """Return plain JSON as message text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# A segment runs the program until it ends or pauses. On resume LangGraph runs the node again; finished segments and
# answers then come from the checkpoint, and finished calls of a segment from the ledger.

SegmentRecord: TypeAlias = dict[str, Any]
"""The stored record of a segment: fingerprint, digests of answers, ending, and outputs of its calls."""


@dataclass
class SegmentRunner:
    """Runs one outer ``call``. ``approvals``: create the questions. ``caller``: runs the nested calls."""

    call: OuterCall
    approvals: ApprovalPolicy
    tool_call_id: str
    caller: ToolCaller
    config: RunnableConfig
    _questions: OuterCallQuestions = field(init=False)
    _waiting: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]], init=False)
    _records: list[SegmentRecord] = field(default_factory=list[SegmentRecord], init=False)
    _value: Any = field(default=None, init=False)  # unserialized, if it is not from a record
    _error: CodeModeError | None = field(default=None, init=False)
    _saved_outputs: SavedCallOutputs | None = field(default=None, init=False)  # only with a journal

    def __post_init__(self) -> None:
        self._questions = OuterCallQuestions(self.approvals, self.call, self.caller)
        if self.call.is_journaled and compute_node_id(self.config) is not None:
            self._saved_outputs = SavedCallOutputs(self.config, self.tool_call_id)

    def run(self) -> ProgramOutcome:
        """Run to the end. Raises LangGraph's interrupt while answers are missing."""
        steps, result = self._iter_work_items(), None
        while True:
            try:
                work_item = steps.send(result)
            except StopIteration as stop:
                return stop.value
            if not is_in_node(self.config):
                result = self._run_segment(cast("SegmentToRun", work_item))
            elif isinstance(work_item, SavedOutputsToLoad):
                result = work_item.saved_outputs.load()
            elif isinstance(work_item, QuestionsToAsk):
                if not self._claim_asking_turn(work_item):
                    clear_interrupt(self.config)
                    raise_interrupts([])  # LangGraph runs this call again after the other answer
                result = _collect_question_results(
                    work_item,
                    [future.result for future in self._start_question_tasks(work_item, take_or_ask_and_save_answer)],
                )
            else:
                result = self._start_segment_task(work_item, partial(self._run_segment, work_item)).result()

    async def arun(self) -> ProgramOutcome:
        """Do what `run` does without blocking."""
        with RunningOuterCallRegistration(self.config) as sibling:
            try:
                return await self._arun_work_items()
            except Exception as error:
                if get_interrupts(error) is not None:
                    await sibling.unregister_and_wait_for_others()
                raise

    async def _arun_work_items(self) -> ProgramOutcome:
        steps, result = self._iter_work_items(), None
        while True:
            try:
                work_item = steps.send(result)
            except StopIteration as stop:
                return stop.value
            if not is_in_node(self.config):
                result = await self._arun_segment(cast("SegmentToRun", work_item))
            elif isinstance(work_item, SavedOutputsToLoad):
                result = await work_item.saved_outputs.aload()
            elif isinstance(work_item, QuestionsToAsk):
                if not self._claim_asking_turn(work_item):
                    await clear_interrupt_async(self.config)
                    raise_interrupts([])  # as above
                results = await asyncio.gather(
                    *self._start_question_tasks(work_item, take_or_ask_and_save_answer_async), return_exceptions=True
                )
                result = _collect_question_results(work_item, [partial(_raise_or_return, item) for item in results])
            else:
                result = await self._start_segment_task(
                    work_item, to_coroutine_function(partial(self._arun_segment, work_item))
                )

    def _iter_work_items(self) -> Generator[WorkItem, Any, ProgramOutcome]:
        """Yield work items in order; the caller sends back each result."""
        if self._saved_outputs is not None:
            yield SavedOutputsToLoad(saved_outputs=self._saved_outputs)
        segment = SegmentToRun(step=0, interrupt=None, questions=(), calls=self._make_nested_calls(0, ()))
        while True:
            record: SegmentRecord = yield segment
            self._verify_and_add_record(record, segment)
            if "interrupt" not in record:
                return self._make_outcome(record)
            interrupt = Interrupt.from_dict(record["interrupt"])
            if (
                self.caller.limits is not None
                and (stop_result := self.caller.limits.make_stop_result_or_raise(interrupt)) is not None
            ):
                return self._make_stopped_outcome(*stop_result)
            step = segment.step + 1
            questions = self._restore_answers_and_get_questions(step, interrupt)
            if not questions and interrupt.requests:  # without requests it continues
                questions = yield from self._collect_answered_questions_or_raise(interrupt)
            run = self._make_nested_calls(step, questions)
            segment = SegmentToRun(step=step, interrupt=interrupt, questions=questions, calls=run)

    def _restore_answers_and_get_questions(self, step: int, interrupt: Interrupt) -> tuple[Question, ...]:
        """Return the questions whose answers another process gave this segment; none if it was not started."""
        answers = None if self._saved_outputs is None else self._saved_outputs.get_answers(step)
        if answers is None:
            return ()
        self._questions.add_answers(answers)
        return tuple(question for question in self._questions.make_questions(interrupt) if question.key in answers)

    def _collect_answered_questions_or_raise(
        self, interrupt: Interrupt
    ) -> Generator[WorkItem, Any, tuple[Question, ...]]:
        """Return the answered questions. Raises LangGraph's interrupt if there are none."""
        if not is_in_node(self.config):
            request = interrupt.requests[0]
            raise CodeModeToolApprovalRequiredError(
                f"a call of tool {request.tool_name!r} needs approval: run it in a LangGraph graph with a checkpointer",
                details={"tool_name": request.tool_name, "tool_call_id": request.tool_call_id},
            )
        questions = self._questions.make_questions(interrupt)
        unanswered = {question.key: question for question in questions if not self._questions.is_answered(question)}
        not_waiting = [question for key, question in unanswered.items() if key not in self._waiting]
        asked_questions = batch_questions(not_waiting) if self.approvals.is_batched else not_waiting
        if asked_questions:
            warn_if_graph_cannot_resume(self.config)
        collected: CollectedAnswers = yield QuestionsToAsk(questions=tuple(asked_questions))
        self._questions.add_answers(split_batch_answers(asked_questions, collected.answers))
        self._waiting.update(assign_batch_interrupts_to_members(asked_questions, collected.waiting))
        answered = tuple(question for question in questions if self._questions.is_answered(question))
        if not answered:
            interrupts = (
                pending_interrupt for question in questions for pending_interrupt in self._waiting[question.key]
            )
            raise_interrupts([*{question.id: question for question in interrupts}.values()])
        return answered

    def _make_nested_calls(self, step: int, questions: Sequence[Question]) -> NestedCalls:
        inner_answers, responses = self._questions.collect_inner_answers_and_responses(questions)
        saved_outputs, number = self._saved_outputs, compute_task_number(self.tool_call_id, "beginning", str(step))
        needs_marker = step > 0 or not self.call.continues_program
        is_first_run = saved_outputs is None or saved_outputs.get_answers(step) is None
        if saved_outputs is not None and self.caller.limits is not None:
            self.caller.limits.restore_counted_calls(
                {key: output.counted for key, output in saved_outputs.get_outputs(step).items() if output.counted}
            )
        return NestedCalls(
            caller=self.caller,
            config=self.config,
            answers=inner_answers,
            responses=responses,
            newly_answered=self._questions.find_newly_answered_call_ids(questions) if is_first_run else frozenset(),
            earlier_commands=tuple(command for output in self._records for command in output["commands"]),
            start_marker=SegmentStartMarker(self.config, number, is_journaled=saved_outputs is not None)
            if needs_marker
            else None,
            outer_tool_call_id=self.tool_call_id,
            is_rerun_rejected=self._questions.is_rerun_rejected(questions),
            outputs={} if saved_outputs is None else saved_outputs.get_outputs(step),
            save_output=None if saved_outputs is None else partial(saved_outputs.save, step),
            asave_output=None if saved_outputs is None else partial(saved_outputs.asave, step),
        )

    # --- records ---

    def _verify_and_add_record(self, record: SegmentRecord, segment: SegmentToRun) -> None:
        """Verify that a record belongs to this segment, and continue from it."""
        answer_digests = self._questions.compute_answer_digests(segment.questions)
        if (
            record.get("of") != self._compute_segment_fingerprint(segment)
            or not record["answered"].items() <= answer_digests.items()
        ):
            raise CodeModeProtocolError(
                "the checkpoint holds the result of another program or of other answers for this call"
                f" of {self.call.name}"
            )
        # The recorded segment may have had only some of the answers.
        answered = [question for question in segment.questions if question.key in record["answered"]]
        self._questions.record_segment(answered, record["asked"], record.get("names", {}))
        self._records.append(record)

    def _take_outputs_and_make_record(
        self, segment: SegmentToRun, ending_fields: dict[str, Any], waiting_ids: Collection[str] = ()
    ) -> SegmentRecord:
        outputs = segment.calls.take_finished_outputs(waiting_ids)
        names = {call_id: name for call_id, name in segment.calls.display_names.items() if call_id in waiting_ids}
        return {
            "of": self._compute_segment_fingerprint(segment),
            "answered": self._questions.compute_answer_digests(segment.questions),
            "asked": segment.calls.waiting_questions,
            **({"names": names} if names else {}),
            "commands": [
                *(command for output in outputs for command in output.commands),
                *make_state_commands(self.call),
            ],
            "artifacts": [output.artifact for output in outputs if output.artifact is not None],
            **({} if self.caller.limits is None else self.caller.limits.segment_record_fields),
            "made": [
                call.to_dict(call_id)
                for call_id, call in segment.calls.made_calls.items()
                if call_id not in waiting_ids
            ],
            **ending_fields,
        }

    def _compute_segment_fingerprint(self, segment: SegmentToRun) -> str:
        interrupt_fields = None if segment.interrupt is None else segment.interrupt.to_dict()
        return compute_digest([self.call.name, self.tool_call_id, self.call.arguments, segment.step, interrupt_fields])

    def _make_outcome(self, record: SegmentRecord) -> ProgramOutcome:
        value = json.loads(record.get("value", "null"))
        return ProgramOutcome(
            value=value if self._value is None else self._value,
            text=to_message_text(json.loads(record["shown"]) if "shown" in record else value),
            content=tuple(record.get("content", ())),
            failure=record.get("failure"),
            commands=self._list_commands(),
            artifacts=collect_calls(self._records),
            error=self._error,
        )

    def _make_stopped_outcome(self, text: str, command: Any) -> ProgramOutcome:
        failure = make_failure_fields(CodeModeToolError(text), self.call.program)
        return ProgramOutcome(
            failure={**failure, "text": text},
            commands=(*self._list_commands(), command),
            artifacts=collect_calls(self._records),
        )

    def _list_commands(self) -> tuple[Any, ...]:
        limits = self.caller.limits
        count_commands = [] if limits is None else limits.make_call_count_commands(self._records, self.tool_call_id)
        return (*(command for record in self._records for command in record["commands"]), *count_commands)

    # --- execution ---

    def _start_segment_task(self, segment: SegmentToRun, function: Callable[[], Any]) -> Any:
        number = compute_task_number(self.tool_call_id, "segment", str(segment.step))
        return start_task(self.config, number, function, self.call.name)

    def _claim_asking_turn(self, work_item: QuestionsToAsk) -> bool:
        if not work_item.questions or not self.approvals.asks_once_per_step:
            return True
        return claim_asking_turn(self.config, self.tool_call_id, work_item.questions)

    def _start_question_tasks(self, work_item: QuestionsToAsk, ask: Callable[..., Any]) -> list[Any]:
        return [
            start_task(
                self.config,
                compute_task_number(self.tool_call_id, "question", question.key),
                partial(ask, question, self.config),
                "question",
            )
            for question in work_item.questions
        ]

    def _run_segment(self, segment: SegmentToRun) -> SegmentRecord:
        if self._saved_outputs is not None:
            self._saved_outputs.save_answers(segment.step, self._questions.get_answers(segment.questions))
        try:
            if segment.interrupt is None:
                value = self.call.start(self._make_context(segment))
            else:
                value = self._resume_segment(segment, segment.interrupt)
        except CodeModeError as error:
            return self._make_failure_record_or_raise(segment, error)
        return self._make_end_or_pause_record(segment, value)

    async def _arun_segment(self, segment: SegmentToRun) -> SegmentRecord:
        if self._saved_outputs is not None:
            await self._saved_outputs.asave_answers(segment.step, self._questions.get_answers(segment.questions))
        try:
            if segment.interrupt is None:
                value = await self.call.astart(self._make_context(segment))
            else:
                value = await self._aresume_segment(segment, segment.interrupt)
        except CodeModeError as error:
            return self._make_failure_record_or_raise(segment, error)
        return self._make_end_or_pause_record(segment, value)

    def _resume_segment(self, segment: SegmentToRun, interrupt: Interrupt) -> Any:
        answers, context = self._questions.make_resolutions(segment.questions), self._make_context(segment)
        while True:
            try:
                return self.call.resume(interrupt, answers, context)
            except CodeModeAbortedError as error:
                interrupt, answers = get_restart_and_resolutions_or_raise(error, segment.calls)

    async def _aresume_segment(self, segment: SegmentToRun, interrupt: Interrupt) -> Any:
        answers, context = self._questions.make_resolutions(segment.questions), self._make_context(segment)
        while True:
            try:
                return await self.call.aresume(interrupt, answers, context)
            except CodeModeAbortedError as error:
                interrupt, answers = get_restart_and_resolutions_or_raise(error, segment.calls)

    def _make_context(self, segment: SegmentToRun) -> CallContext:
        """Return the call context, the same when LangGraph runs the node again."""
        return CallContext(
            tool_call_id=self.tool_call_id,
            context=segment.calls,
            conversation_id=compute_node_id(self.config),
            started_at_ms=get_step_time_ms(self.config),
        )

    def _make_end_or_pause_record(self, segment: SegmentToRun, value: Any) -> SegmentRecord:
        if isinstance(value, Interrupt):
            waiting = {request.tool_call_id for request in value.requests}
            return self._take_outputs_and_make_record(segment, {"interrupt": value.to_dict()}, waiting)
        self._value = value
        displayed, parts = self.call.to_model_parts(value, self.tool_call_id)
        plain_value = split_content(value)[0] if parts else value
        # As text: checkpoints lose integers beyond 64 bits.
        ending_fields: SegmentRecord = {
            "value": json.dumps(plain_value),
            **({} if displayed is value else {"shown": json.dumps(displayed)}),
        }
        return self._take_outputs_and_make_record(
            segment, ending_fields | ({"content": [to_model_block(part) for part in parts]} if parts else {})
        )

    def _make_failure_record_or_raise(self, segment: SegmentToRun, error: CodeModeError) -> SegmentRecord:
        if segment.interrupt is not None and (refusal := annotate_if_refusal(error)) is not None:
            raise refusal  # not recorded: the run can be retried with the same answers
        if self._saved_outputs is not None and error.details.get("origin") == "journal":
            raise error  # not recorded: the next run of the graph continues
        if (recovery := Interrupt.find_recovery(error)) is not None:
            return self._make_end_or_pause_record(segment, recovery)
        self._error = error
        return self._take_outputs_and_make_record(segment, {"failure": make_failure_fields(error, self.call.program)})


def _collect_question_results(work_item: QuestionsToAsk, results: Sequence[Callable[[], Any]]) -> CollectedAnswers:
    answers: dict[str, Any] = {}
    waiting: dict[str, tuple[Any, ...]] = {}
    for question, result in zip(work_item.questions, results, strict=True):
        try:
            answer = result()
        except Exception as error:
            interrupts = take_interrupts(error)
            if interrupts is None:
                raise
            waiting[question.key] = interrupts
            continue
        if answer["of"] != question.key:
            raise CodeModeProtocolError("the checkpoint holds the answer to another question of this call")
        answers[question.key] = answer["answer"]
    return CollectedAnswers(answers=answers, waiting=waiting)


def _raise_or_return(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result
