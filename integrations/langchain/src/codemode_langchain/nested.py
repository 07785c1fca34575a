"""Run the nested calls of one segment, each with its own LangGraph scratchpad."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial, wraps
from typing import Any, Literal, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import BaseTool, ToolException

from codemode import CodeModeToolError, ToolCallContext, request_interrupt
from codemode.plugins import create_fork_safe_lock, protect_integers

from .answer_matching import NestedAnswers, compute_interrupt_id
from .approvals import ToolCaller
from .arguments import ValidatedArguments
from .checkpoints import CallSideOutput, SegmentStartMarker
from .conversion import (
    ASYNC_ONLY_MESSAGE,
    OutputCapture,
    convert_tool_exception,
    is_async_only,
    make_tool_call,
    to_program_value,
)
from .graph_state import (
    ChannelWrites,
    NestedWriteRecorder,
    list_graph_writes_without_answers,
    make_state_access_config,
    readdress_and_extract_answer,
    readdress_messages,
)
from .langgraph_internals import (
    NAMESPACE,
    RESUME_MAP,
    SCRATCHPAD,
    get_interrupts,
    get_node_context,
    get_parent_command,
    is_invalid_resume,
    take_interrupts,
)
from .node_tasks import compute_task_number, make_numbered_task_configurable


@dataclass(frozen=True, kw_only=True)
class InterruptAnswer:
    """The answer to one ``interrupt()`` of a call. ``is_own``: the tool's interrupt, not that of a graph inside it.

    ``inside``: id of the interrupt in that graph. ``shown``: `compute_display_digest` of the question. Field names are
    stored.
    """

    value: Any
    is_own: bool
    inside: str
    shown: str


@dataclass
class NestedScratchpad:
    """Makes ``interrupt()`` inside one nested call count from zero and find only this call's answers.

    ``answers``: batches of answers given at the same time. ``is_newly_answered``: the latest batch has reached no call
    yet, so that no graph inside this call has used it.
    """

    key: str
    writes: NestedWriteRecorder
    answers: Sequence[Sequence[InterruptAnswer]] = ()
    is_newly_answered: bool = False
    _asked_count: int = field(default=0, init=False)

    @property
    def has_tool_interrupt(self) -> bool:
        """True if the tool raised an interrupt of its own: it asked more than was answered."""
        return self._asked_count > len(self._tool_answers)

    def apply_to(self, config: RunnableConfig) -> RunnableConfig:
        """Return the nested call's configuration; unchanged outside a node."""
        node_context = get_node_context(config)
        if node_context is None:
            return config
        first_number = compute_task_number("nested", self.key)
        # A graph inside the tool stores earlier answers, and finds the latest in a map. LangGraph would pass an answer
        # in the map again, to the node's next question.
        newest_batch = self.answers[-1] if self.is_newly_answered and self.answers else ()
        newest_foreign = [answer for answer in newest_batch if not answer.is_own]
        foreign_answers = self._inner_graph_answers
        nested_answers = NestedAnswers(foreign_answers, {answer.shown: answer.value for answer in newest_foreign})
        wrap_task = partial(_wrap_task_function, answers=foreign_answers, nested_answers=nested_answers)
        configurable = make_numbered_task_configurable(
            config, itertools.count(first_number).__next__, hide=False, wrap=wrap_task
        )
        scratchpad = replace(
            node_context.scratchpad,
            call_counter=itertools.count(first_number).__next__,
            subgraph_counter=itertools.count(first_number).__next__,
            interrupt_counter=self._next_interrupt_number,
            resume=self._tool_answers,
            get_null_resume=nested_answers,
        )
        newest_by_id = {answer.inside: answer.value for answer in newest_foreign}
        configurable_fields = {
            SCRATCHPAD: scratchpad,
            **make_state_access_config(node_context, self.writes),
            RESUME_MAP: newest_by_id,
        }
        return cast("RunnableConfig", {**config, "configurable": {**configurable, **configurable_fields}})

    @property
    def _tool_answers(self) -> list[Any]:
        return [answer.value for batch in self.answers for answer in batch if answer.is_own]

    @property
    def _inner_graph_answers(self) -> dict[str, Any]:
        return {answer.inside: answer.value for batch in self.answers for answer in batch if not answer.is_own}

    def _next_interrupt_number(self) -> int:
        self._asked_count += 1
        return self._asked_count - 1


def _wrap_task_function(
    function: Callable[..., Any], answers: Mapping[str, Any], nested_answers: NestedAnswers
) -> Callable[..., Any]:
    """Wrap the function of a task of a nested call: it finds its answers, and its interrupts stay in the call.

    The task belongs to the outer node, which would otherwise report its interrupts in addition to the call's.
    """
    from langgraph.config import get_config

    def add_answers_to_scratchpad() -> None:
        configurable = cast("Any", get_config())["configurable"]
        scratchpad = configurable[SCRATCHPAD] = replace(configurable[SCRATCHPAD], get_null_resume=nested_answers)
        while (interrupt_key := compute_interrupt_id(configurable[NAMESPACE], len(scratchpad.resume))) in answers:
            scratchpad.resume.append(answers[interrupt_key])

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        add_answers_to_scratchpad()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    @wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        add_answers_to_scratchpad()
        try:
            return await function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    return arun if inspect.iscoroutinefunction(function) else run


INTERRUPT_KIND = "langgraph-interrupt"
STARTED_EARLIER_KIND = "langgraph-begun"
_STOPPED_MESSAGE = (
    "this program was interrupted; which of its calls ran is unknown, and a person decided not to run it again"
)

_CANNOT_ASK_MESSAGE = (
    "this tool calls interrupt(), and a parked program cannot wait for the answer: use approve for this tool"
)


@dataclass
class NestedCallEntry:
    """One call that ran: tool, displayed arguments and status."""

    tool: str
    args: Mapping[str, Any]
    status: Literal["success", "error", "unfinished"] = "unfinished"

    def to_dict(self, tool_call_id: str) -> dict[str, Any]:
        """Return plain JSON in which integers beyond 2^53, which checkpoints lose, are text with their paths."""
        fields = {"tool": self.tool, "tool_call_id": tool_call_id, "args": self.args, "status": self.status}
        return protect_integers(fields)


class InvalidAnswerError(Exception):
    """The latest answer does not match the schema of the tool's ``interrupt()``."""


@dataclass
class NestedCalls:
    """Runs the nested calls of one segment.

    ``answers``: batches of answers to interrupts inside calls, ``responses``: results given instead of calls, both by
    nested call id. ``newly_answered``: calls whose latest answers have reached no call yet. ``outputs``: outputs by
    call id, passed to ``save_output`` or ``asave_output``; the field ``asked`` of a waiting call has ``questions``
    (each with ``id``, ``value`` and ``response_schema``), ``is_own`` (not of a graph inside the tool), ``answers``
    (number of earlier batches) and these batches as ``given``. ``earlier_commands``: commands of earlier segments.
    ``start_marker``: tells whether this segment was started before; a person then decides whether to run it again, and
    ``is_rerun_rejected`` means no. ``display_names``: displayed tool names by call id. ``outer_tool_call_id``: the
    outer call's id, if the core has another one. ``can_ask``: False if interrupts of tools cannot be answered.
    ``made_calls``: calls by id, in start order.
    """

    caller: ToolCaller
    config: RunnableConfig
    answers: Mapping[str, Sequence[Sequence[InterruptAnswer]]] = field(
        default_factory=dict[str, Sequence[Sequence[InterruptAnswer]]]
    )
    responses: Mapping[str, str] = field(default_factory=dict[str, str])
    newly_answered: frozenset[str] = frozenset()
    earlier_commands: Sequence[Any] = ()
    start_marker: SegmentStartMarker | None = None
    is_rerun_rejected: bool = False
    outputs: dict[str, CallSideOutput] = field(default_factory=dict[str, CallSideOutput])
    save_output: Callable[[str, CallSideOutput], None] | None = None
    asave_output: Callable[[str, CallSideOutput], Awaitable[None]] | None = None
    display_names: dict[str, str] = field(default_factory=dict[str, str])
    outer_tool_call_id: str | None = None
    can_ask: bool = True
    made_calls: dict[str, NestedCallEntry] = field(default_factory=dict[str, NestedCallEntry], init=False)
    _successor: NestedCalls | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=create_fork_safe_lock, init=False)

    def run(self, tool: BaseTool, arguments: ValidatedArguments, context: ToolCallContext) -> Any:
        """Run one call; may block."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        if self.start_marker is not None:
            self._ask_or_refuse_unless_first_start(is_first=self.start_marker.claim_start())
        self._count_call_or_stop(tool, context)
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _CallAttempt(self, tool, arguments, context, answers, context.tool_call_id in self.newly_answered)
        try:
            with self._record_call_status(attempt):
                return self._run_attempt(attempt)
        finally:
            if self.save_output is not None and (output := self.outputs.get(context.tool_call_id)):
                self.save_output(context.tool_call_id, output)

    async def arun(self, tool: BaseTool, arguments: ValidatedArguments, context: ToolCallContext) -> Any:
        """Run one call without blocking."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        if self.start_marker is not None:
            self._ask_or_refuse_unless_first_start(is_first=await self.start_marker.aclaim_start())
        self._count_call_or_stop(tool, context)
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _CallAttempt(self, tool, arguments, context, answers, context.tool_call_id in self.newly_answered)
        try:
            with self._record_call_status(attempt):
                return await self._arun_attempt(attempt)
        finally:
            if self.asave_output is not None and (output := self.outputs.get(context.tool_call_id)):
                await self.asave_output(context.tool_call_id, output)

    def take_finished_outputs(self, waiting_ids: Collection[str]) -> list[CallSideOutput]:
        """Take the outputs of calls that do not wait, oldest first; a waiting call runs again and adds its own."""
        with self._lock:
            finished = {
                key: output for key, output in self.outputs.items() if key not in waiting_ids and output.asked is None
            }
            self.outputs = {key: output for key, output in self.outputs.items() if key not in finished}
            self.earlier_commands = (
                *self.earlier_commands,
                *(command for output in finished.values() for command in output.commands),
            )
            return [*finished.values()]

    def hand_over_to(self, other: NestedCalls) -> None:
        """Continue the program in another outer call: later outputs go there."""
        with self._lock:
            outputs, self.outputs, self._successor = self.outputs, {}, other
        other.display_names = self.display_names
        other.answers = {**self.answers, **other.answers}
        other.responses = {**self.responses, **other.responses}
        for call_id, output in outputs.items():
            other.add_output(call_id, self._readdress_output(output, other))

    @property
    def has_checked_start(self) -> bool:
        """True if a call has checked whether the segment was started before."""
        return self.start_marker is not None and self.start_marker.was_checked

    @property
    def waiting_questions(self) -> dict[str, Mapping[str, Any]]:
        """The questions of waiting calls, by call id."""
        with self._lock:
            return {call_id: output.asked for call_id, output in self.outputs.items() if output.asked is not None}

    @contextmanager
    def _record_call_status(self, attempt: _CallAttempt) -> Generator[None]:
        call = attempt.call
        made_call = self.made_calls[str(call["id"])] = NestedCallEntry(call["name"], call["args"])
        try:
            yield
        except Exception:
            made_call.status = "error"
            raise
        made_call.status = "success"

    def _run_attempt(self, attempt: _CallAttempt) -> Any:
        try:
            return attempt.record_and_convert_result(self._call_tool(attempt))
        except InvalidAnswerError:
            attempt = attempt.without_latest_answers()
            return attempt.record_and_convert_result(self._call_tool(attempt))

    async def _arun_attempt(self, attempt: _CallAttempt) -> Any:
        try:
            return attempt.record_and_convert_result(await self._acall_tool(attempt))
        except InvalidAnswerError:
            attempt = attempt.without_latest_answers()
            return attempt.record_and_convert_result(await self._acall_tool(attempt))

    def _count_call_or_stop(self, tool: BaseTool, context: ToolCallContext) -> None:
        if self.caller.limits is not None:
            self.caller.limits.count_call_or_stop(tool.name, context.tool_call_id)

    def _ask_or_refuse_unless_first_start(self, *, is_first: bool) -> None:
        if self.is_rerun_rejected:
            raise CodeModeToolError(_STOPPED_MESSAGE)
        if not is_first:
            request_interrupt({"kind": STARTED_EARLIER_KIND})

    def _call_tool(self, attempt: _CallAttempt) -> Any:
        with set_config_context(attempt.config) as variables:
            try:
                return variables.run(self.caller.call, attempt.capture.tool, attempt.call, attempt.config)
            except Exception as error:  # noqa: BLE001 - interrupts become pauses, most errors are raised again
                return attempt.convert_error_to_pause_or_raise(error)

    async def _acall_tool(self, attempt: _CallAttempt) -> Any:
        with set_config_context(attempt.config) as variables:
            work = self.caller.acall(attempt.capture.tool, attempt.call, attempt.config)
            try:
                return await asyncio.create_task(cast("Coroutine[Any, Any, Any]", work), context=variables)
            except Exception as error:  # noqa: BLE001 - as above
                return attempt.convert_error_to_pause_or_raise(error)

    def add_output(self, call_id: str, output: CallSideOutput) -> None:
        """Store the output of a call, for later calls and for the graph."""
        with self._lock:
            successor = self._successor
            if successor is None:
                self.outputs.pop(call_id, None)  # from an earlier attempt in another process
                if output:
                    self.outputs[call_id] = output
        if successor is not None:
            successor.add_output(call_id, self._readdress_output(output, successor))

    def _readdress_output(self, output: CallSideOutput, other: NestedCalls) -> CallSideOutput:
        outer_id, other_outer_id = self.outer_tool_call_id, other.outer_tool_call_id
        if not output.commands or outer_id is None or other_outer_id is None:
            return output
        return replace(
            output, commands=[readdress_messages(command, outer_id, other_outer_id) for command in output.commands]
        )

    def list_commands(self) -> list[Any]:
        """Return the commands of all finished calls."""
        with self._lock:
            return [
                *self.earlier_commands,
                *(command for output in self.outputs.values() for command in output.commands),
            ]


class _CallAttempt:
    """One attempt at one call."""

    def __init__(
        self,
        calls: NestedCalls,
        tool: BaseTool,
        arguments: ValidatedArguments,
        context: ToolCallContext,
        answers: Sequence[Sequence[InterruptAnswer]],
        is_newly_answered: bool,
    ) -> None:
        self._calls = calls
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._answers = answers
        self._id = context.tool_call_id
        self._outer_id = calls.outer_tool_call_id or context.outer_tool_call_id
        self._commands: list[Any] = []
        writes = NestedWriteRecorder(add_command=self._commands.append, get_pairs=self._list_writes)
        self._scratchpad = NestedScratchpad(self._id, writes, answers, is_newly_answered)
        self.config = self._scratchpad.apply_to(calls.config)
        self.capture = OutputCapture(tool, self.config, arguments)
        self.call = make_tool_call(tool.name, arguments.copy(), self._id)

    def without_latest_answers(self) -> _CallAttempt:
        """Return an attempt without the latest answers, which asks the open questions again."""
        return _CallAttempt(self._calls, self._tool, self._arguments, self._context, self._answers[:-1], False)

    def record_and_convert_result(self, result: Any) -> Any:
        """Return the value for the program; artifacts and state updates are stored here."""
        message: ToolMessage | None = None
        for part in cast("list[Any]", result) if isinstance(result, list) else [result]:
            if isinstance(part, ToolMessage):
                message = part
            elif hasattr(part, "update"):
                command, answer_message = readdress_and_extract_answer(part, self._id, self._outer_id)
                self._commands.append(command)
                message = answer_message or message
        artifact = None if message is None else message.artifact
        artifact_fields = {"tool": self._tool.name, "tool_call_id": self._id, "artifact": artifact}
        output = CallSideOutput(
            commands=self._commands,
            artifact=artifact_fields if artifact is not None else None,
            counted=self._tool_name_for_limits,
        )
        self._calls.add_output(self._id, output)
        return None if message is None else to_program_value(message, self.capture)

    def convert_error_to_pause_or_raise(self, error: Exception) -> Any:
        """Convert an error: an interrupt to a pause, an invalid answer to `InvalidAnswerError`; raise others.

        Returns the command if a graph inside the tool hands over to this one.
        """
        if self._answers and is_invalid_resume(error):
            raise InvalidAnswerError from error
        if (command := get_parent_command(error)) is not None:
            return command
        interrupts = get_interrupts(error)
        if interrupts is None:
            # Earlier writes are kept; a paused call runs again.
            self._calls.add_output(
                self._id, CallSideOutput(commands=self._commands, counted=self._tool_name_for_limits)
            )
            if isinstance(error, ToolException):
                raise convert_tool_exception(error, self._tool.name) from error.__cause__
            if isinstance(error, NotImplementedError) and is_async_only(self._tool):
                raise CodeModeToolError(ASYNC_ONLY_MESSAGE.format(self._tool.name)) from error
            raise error
        if not self._calls.can_ask:
            raise CodeModeToolError(_CANNOT_ASK_MESSAGE, details={"tool_name": self._tool.name}) from error
        if not interrupts:
            raise CodeModeToolError("a nested call paused without asking anything") from error
        asked_fields = {
            "questions": [
                {"id": item.id, "value": item.value, "response_schema": item.response_schema} for item in interrupts
            ],
            "is_own": self._scratchpad.has_tool_interrupt,
            "answers": len(self._answers),
            "given": [[asdict(item) for item in batch] for batch in self._answers],
        }
        self._calls.add_output(self._id, CallSideOutput(asked=asked_fields))
        return request_interrupt({"kind": INTERRUPT_KIND})

    @property
    def _tool_name_for_limits(self) -> str | None:
        return None if self._calls.caller.limits is None else self._tool.name

    def _list_writes(self) -> ChannelWrites:
        return list_graph_writes_without_answers([*self._calls.list_commands(), *self._commands], self._outer_id)
