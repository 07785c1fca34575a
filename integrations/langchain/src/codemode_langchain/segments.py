"""Run a program across pauses: segments and questions, each kept in the checkpoint."""

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

from .answers import Sibling, ask_person, ask_person_async, may_ask_now
from .approvals import Approvals, Caller, Question
from .checkpoints import (
    Beginning,
    Leavings,
    forget_interrupt,
    forget_interrupt_async,
    time_of_step_ms,
    warn_if_unanswerable,
)
from .content import shown_block
from .graph import awaited, binding_in_node, digest, number_of, start_task
from .graph_state import left_by
from .nested import NestedRun
from .pregel import interrupts_in, is_in_node, raise_interrupts, take_interrupts
from .questions import OuterCall, Questions, batched, taken_apart, waiting_of

_LATE_NOTE = (
    "Go on with the checkpoint of the thread that came of the first answers; the same answers again give the same"
    " outcome, and run nothing."
)
_KEY_NOTE = (
    "a program that goes on in another process needs the signing key of the first one; "
    "give options={'continuation': {'keys': ...}} or call codemode.set_continuation_signing_key"
)


@dataclass(frozen=True, kw_only=True)
class RunSegment:
    """Run the program up to its next pause. Answers to ``questions`` resolve ``interrupt``; None is the start."""

    step: int
    interrupt: Interrupt | None
    questions: tuple[Question, ...]
    run: NestedRun


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Find what was kept of this call by processes that have ended."""

    leavings: Leavings


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Ask people, all at once."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The answers there are, and LangGraph's interrupts for the other questions, by key."""

    answers: Mapping[str, Any]
    waiting: Mapping[str, tuple[Any, ...]]


Work: TypeAlias = RunSegment | Ask | Recall


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended, and what its nested calls left beside their values.

    ``text`` is the value for the model, ``content`` are the images, audio and files beside it. ``artifacts`` lists the
    calls, each with its artifact where it has one.
    """

    value: Any = None
    text: str = ""
    content: tuple[Mapping[str, Any], ...] = ()
    failure: Mapping[str, Any] | None = None
    commands: tuple[Any, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    error: CodeModeError | None = None


def calls_in(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return all calls that are known of, each with its artifact where it has one."""
    calls: dict[str, dict[str, Any]] = {
        one["tool_call_id"]: one for record in records for one in record.get("made", ())
    }
    for one in (one for record in records for one in record["artifacts"]):
        # One of a process that has ended has left nothing else.
        calls[one["tool_call_id"]] = {**calls.get(one["tool_call_id"], {}), **one}
    return tuple(calls.values())


def failure_of(error: CodeModeError, program: str) -> dict[str, str]:
    """Return what is kept of a failure; the text is for the model."""
    return {"name": type(error).__name__, "code": error.code, "text": failure_text(error, program)}


def refusal_of(error: CodeModeError) -> CodeModeError | None:
    """Return an error that came before anything of the program ran, with a note of what to do; None for any other."""
    is_refusal = isinstance(error, CodeModeProtocolError) and not error.calls
    if not is_refusal and not isinstance(error, CodeModeConcurrencyError):
        return None
    is_late = isinstance(error, CodeModeProtocolError) and error.was_answered
    error.add_note(f"codemode-langchain: {_LATE_NOTE if is_late else _KEY_NOTE}")
    return error


def begun_elsewhere(error: CodeModeAbortedError, run: NestedRun) -> tuple[Interrupt, dict[str, Any]]:
    """Return from where to repeat a part that a lost host had begun, and the answers that make its calls once more.

    Without a journal no one knows which calls that host made: the `Beginning` of the part asks before the first of
    them. Raises any other error, and that of a part which has begun here too, before the other host took it over.
    """
    recovery = error.recovery
    if Interrupt.find_recovery(error) is not None or not isinstance(recovery, Interrupt) or run.has_begun:
        raise error
    return recovery, {request.interrupt_id: {"runAgain": True} for request in recovery.requests}


def as_text(value: Any) -> str:
    """Return what the content of a message says of plain JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# A segment runs the program until it ends or pauses. On resume LangGraph runs the node again from its start; finished
# segments and given answers then come from the checkpoint, and inside a segment finished calls come from the ledger.

Record: TypeAlias = dict[str, Any]
"""What the checkpoint keeps of a segment: whose it is, which answers it was given, how it ended, what it left."""


@dataclass
class Segments:
    """One outer ``call``. ``approvals`` word the questions, ``caller`` makes the nested calls."""

    call: OuterCall
    approvals: Approvals
    tool_call_id: str
    caller: Caller
    config: RunnableConfig
    _questions: Questions = field(init=False)
    _waiting: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]], init=False)
    _left: list[Record] = field(default_factory=list[Record], init=False)
    _value: Any = field(default=None, init=False)  # as it was, where it is not of a record
    _error: CodeModeError | None = field(default=None, init=False)
    _leavings: Leavings | None = field(default=None, init=False)  # where there is a journal to go on from

    def __post_init__(self) -> None:
        self._questions = Questions(self.approvals, self.call, self.caller)
        if self.call.is_journaled and binding_in_node(self.config) is not None:
            self._leavings = Leavings(self.config, self.tool_call_id)

    def run(self) -> Outcome:
        """Run to the end. Raises LangGraph's interrupt while people have to answer."""
        work, done = self._steps(), None
        while True:
            try:
                todo = work.send(done)
            except StopIteration as end:
                return end.value
            if not is_in_node(self.config):
                done = self._run_segment(cast("RunSegment", todo))
            elif isinstance(todo, Recall):
                done = todo.leavings.recall()
            elif isinstance(todo, Ask):
                if not self._may_ask(todo):
                    forget_interrupt(self.config)
                    raise_interrupts([])  # LangGraph runs this call again when the other question was answered
                done = _collected(todo, [future.result for future in self._ask(todo, ask_person)])
            else:
                done = self._start(todo, partial(self._run_segment, todo)).result()

    async def arun(self) -> Outcome:
        """Do what `run` does without blocking."""
        with Sibling(self.config) as sibling:
            try:
                return await self._aworked()
            except Exception as error:
                if interrupts_in(error) is not None:
                    await sibling.others_ended()
                raise

    async def _aworked(self) -> Outcome:
        work, done = self._steps(), None
        while True:
            try:
                todo = work.send(done)
            except StopIteration as end:
                return end.value
            if not is_in_node(self.config):
                done = await self._arun_segment(cast("RunSegment", todo))
            elif isinstance(todo, Recall):
                done = await todo.leavings.arecall()
            elif isinstance(todo, Ask):
                if not self._may_ask(todo):
                    await forget_interrupt_async(self.config)
                    raise_interrupts([])  # as above
                answered = await asyncio.gather(*self._ask(todo, ask_person_async), return_exceptions=True)
                done = _collected(todo, [partial(_result, one) for one in answered])
            else:
                done = await self._start(todo, awaited(partial(self._arun_segment, todo)))

    def _steps(self) -> Generator[Work, Any, Outcome]:
        """What is to be done, one thing after the other; whoever does it sends back how it ended."""
        if self._leavings is not None:
            yield Recall(leavings=self._leavings)
        todo = RunSegment(step=0, interrupt=None, questions=(), run=self._nested_run(0, ()))
        while True:
            record: Record = yield todo
            self._take(record, todo)
            if "interrupt" not in record:
                return self._outcome(record)
            interrupt = Interrupt.from_dict(record["interrupt"])
            if self.caller.limits is not None and (stopped := self.caller.limits.end(interrupt)) is not None:
                return self._stopped(*stopped)
            step = todo.step + 1
            questions = self._begun_with(step, interrupt)
            if not questions and interrupt.requests:  # without any it goes on by itself
                questions = yield from self._answered(interrupt)
            run = self._nested_run(step, questions)
            todo = RunSegment(step=step, interrupt=interrupt, questions=questions, run=run)

    def _begun_with(self, step: int, interrupt: Interrupt) -> tuple[Question, ...]:
        """Return the questions whose answers a part was given that another process has begun; none if none has."""
        answers = None if self._leavings is None else self._leavings.answers(step)
        if answers is None:
            return ()
        self._questions.answer(answers)
        return tuple(one for one in self._questions.of(interrupt) if one.key in answers)

    def _answered(self, interrupt: Interrupt) -> Generator[Work, Any, tuple[Question, ...]]:
        """Return the questions that have an answer. Raises LangGraph's interrupt when there is none."""
        if not is_in_node(self.config):
            request = interrupt.requests[0]
            raise CodeModeToolApprovalRequiredError(
                f"a call of tool {request.tool_name!r} needs a person: run it in a LangGraph graph with a checkpointer",
                details={"tool_name": request.tool_name, "tool_call_id": request.tool_call_id},
            )
        questions = self._questions.of(interrupt)
        new = {one.key: one for one in questions if not self._questions.is_answered(one)}
        alone = [one for key, one in new.items() if key not in self._waiting]
        asked = batched(alone) if self.approvals.is_batched else alone
        if asked:
            warn_if_unanswerable(self.config)
        collected: Collected = yield Ask(questions=tuple(asked))
        self._questions.answer(taken_apart(asked, collected.answers))
        self._waiting.update(waiting_of(asked, collected.waiting))
        answered = tuple(one for one in questions if self._questions.is_answered(one))
        if not answered:
            stops = (stop for one in questions for stop in self._waiting[one.key])
            raise_interrupts([*{one.id: one for one in stops}.values()])
        return answered

    def _nested_run(self, step: int, questions: Sequence[Question]) -> NestedRun:
        inside, responses = self._questions.handed_over(questions)
        kept, number = self._leavings, number_of(self.tool_call_id, "beginning", str(step))
        begins = step > 0 or not self.call.goes_on
        is_first = kept is None or kept.answers(step) is None
        if kept is not None and self.caller.limits is not None:
            self.caller.limits.recall({key: left.counted for key, left in kept.of(step).items() if left.counted})
        return NestedRun(
            caller=self.caller,
            config=self.config,
            answers=inside,
            responses=responses,
            newly_answered=self._questions.newly_answered(questions) if is_first else frozenset(),
            earlier=tuple(one for left in self._left for one in left["commands"]),
            beginning=Beginning(self.config, number, is_journaled=kept is not None) if begins else None,
            outer_tool_call_id=self.tool_call_id,
            is_stopped=self._questions.is_stopped(questions),
            left={} if kept is None else kept.of(step),
            keep=None if kept is None else partial(kept.keep, step),
            akeep=None if kept is None else partial(kept.akeep, step),
        )

    # --- records ---

    def _take(self, record: Record, todo: RunSegment) -> None:
        """Check that a record is that of this segment, and go on from it."""
        given = self._questions.digests(todo.questions)
        if record.get("of") != self._fingerprint(todo) or not record["answered"].items() <= given.items():
            raise CodeModeProtocolError(
                "the checkpoint holds the result of another program or of other answers for this call"
                f" of {self.call.name}"
            )
        # With several answers the recorded segment may have been given only the first ones to come.
        answered = [one for one in todo.questions if one.key in record["answered"]]
        self._questions.take(answered, record["asked"], record.get("names", {}))
        self._left.append(record)

    def _record(self, todo: RunSegment, ending: dict[str, Any], waiting: Collection[str] = ()) -> Record:
        left = todo.run.hand_over(waiting)
        names = {one: name for one, name in todo.run.names.items() if one in waiting}
        return {
            "of": self._fingerprint(todo),
            "answered": self._questions.digests(todo.questions),
            "asked": todo.run.asked,
            **({"names": names} if names else {}),
            "commands": [*(command for one in left for command in one.commands), *left_by(self.call)],
            "artifacts": [one.artifact for one in left if one.artifact is not None],
            **({} if self.caller.limits is None else self.caller.limits.record),
            "made": [one.listed(call_id) for call_id, one in todo.run.made.items() if call_id not in waiting],
            **ending,
        }

    def _fingerprint(self, todo: RunSegment) -> str:
        before = None if todo.interrupt is None else todo.interrupt.to_dict()
        return digest([self.call.name, self.tool_call_id, self.call.arguments, todo.step, before])

    def _outcome(self, record: Record) -> Outcome:
        value = json.loads(record.get("value", "null"))
        return Outcome(
            value=value if self._value is None else self._value,
            text=as_text(json.loads(record["shown"]) if "shown" in record else value),
            content=tuple(record.get("content", ())),
            failure=record.get("failure"),
            commands=self._commands(),
            artifacts=calls_in(self._left),
            error=self._error,
        )

    def _stopped(self, text: str, command: Any) -> Outcome:
        failure = failure_of(CodeModeToolError(text), self.call.program)
        return Outcome(
            failure={**failure, "text": text}, commands=(*self._commands(), command), artifacts=calls_in(self._left)
        )

    def _commands(self) -> tuple[Any, ...]:
        limits = self.caller.limits
        counted = [] if limits is None else limits.counted(self._left, self.tool_call_id)
        return (*(one for left in self._left for one in left["commands"]), *counted)

    # --- performing ---

    def _start(self, todo: RunSegment, function: Callable[[], Any]) -> Any:
        number = number_of(self.tool_call_id, "segment", str(todo.step))
        return start_task(self.config, number, function, self.call.name)

    def _may_ask(self, todo: Ask) -> bool:
        if not todo.questions or not self.approvals.asks_once_a_step:
            return True
        return may_ask_now(self.config, self.tool_call_id, todo.questions)

    def _ask(self, todo: Ask, ask: Callable[..., Any]) -> list[Any]:
        return [
            start_task(
                self.config,
                number_of(self.tool_call_id, "question", one.key),
                partial(ask, one, self.config),
                "question",
            )
            for one in todo.questions
        ]

    def _run_segment(self, todo: RunSegment) -> Record:
        if self._leavings is not None:
            self._leavings.begin(todo.step, self._questions.answers_to(todo.questions))
        try:
            if todo.interrupt is None:
                value = self.call.start(self._context(todo))
            else:
                value = self._gone_on(todo, todo.interrupt)
        except CodeModeError as error:
            return self._failed(todo, error)
        return self._ended(todo, value)

    async def _arun_segment(self, todo: RunSegment) -> Record:
        if self._leavings is not None:
            await self._leavings.abegin(todo.step, self._questions.answers_to(todo.questions))
        try:
            if todo.interrupt is None:
                value = await self.call.astart(self._context(todo))
            else:
                value = await self._agone_on(todo, todo.interrupt)
        except CodeModeError as error:
            return self._failed(todo, error)
        return self._ended(todo, value)

    def _gone_on(self, todo: RunSegment, interrupt: Interrupt) -> Any:
        answers, context = self._questions.resolutions(todo.questions), self._context(todo)
        while True:
            try:
                return self.call.go_on(interrupt, answers, context)
            except CodeModeAbortedError as error:
                interrupt, answers = begun_elsewhere(error, todo.run)

    async def _agone_on(self, todo: RunSegment, interrupt: Interrupt) -> Any:
        answers, context = self._questions.resolutions(todo.questions), self._context(todo)
        while True:
            try:
                return await self.call.ago_on(interrupt, answers, context)
            except CodeModeAbortedError as error:
                interrupt, answers = begun_elsewhere(error, todo.run)

    def _context(self, todo: RunSegment) -> CallContext:
        """Return what names an invocation: the same again when LangGraph runs the node once more."""
        return CallContext(
            tool_call_id=self.tool_call_id,
            context=todo.run,
            conversation_id=binding_in_node(self.config),
            started_at_ms=time_of_step_ms(self.config),
        )

    def _ended(self, todo: RunSegment, value: Any) -> Record:
        if isinstance(value, Interrupt):
            waiting = {request.tool_call_id for request in value.requests}
            return self._record(todo, {"interrupt": value.to_dict()}, waiting)
        self._value = value
        shown, parts = self.call.shown(value, self.tool_call_id)
        plain = split_content(value)[0] if parts else value
        # As text, for a checkpoint holds no integer beyond 64 bits.
        found: Record = {"value": json.dumps(plain), **({} if shown is value else {"shown": json.dumps(shown)})}
        return self._record(todo, found | ({"content": [shown_block(part) for part in parts]} if parts else {}))

    def _failed(self, todo: RunSegment, error: CodeModeError) -> Record:
        if todo.interrupt is not None and (refusal := refusal_of(error)) is not None:
            raise refusal  # not recorded: the answers stand, and the same run can be tried again
        if self._leavings is not None and error.details.get("origin") == "journal":
            raise error  # not recorded either: whoever invokes the graph again goes on
        if (recovery := Interrupt.find_recovery(error)) is not None:
            return self._ended(todo, recovery)
        self._error = error
        return self._record(todo, {"failure": failure_of(error, self.call.program)})


def _collected(todo: Ask, results: Sequence[Callable[[], Any]]) -> Collected:
    answers: dict[str, Any] = {}
    waiting: dict[str, tuple[Any, ...]] = {}
    for question, result in zip(todo.questions, results, strict=True):
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
    return Collected(answers=answers, waiting=waiting)


def _result(given: Any) -> Any:
    if isinstance(given, BaseException):
        raise given
    return given
