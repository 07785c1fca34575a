"""Nested calls of one part of a program, each with a scratchpad of its own."""

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
from codemode.plugins import forkable_lock, protect_integers

from .answers import NestedAnswers, interrupt_id
from .approvals import Caller
from .arguments import Arguments
from .checkpoints import Beginning, Left
from .conversion import ONLY_AWAITED, Capture, guest_value, is_only_awaited, told, tool_call
from .graph import number_of, renumbered
from .graph_state import Pairs, Writes, kept, own_state, pairs_of, readdressed
from .pregel import (
    NAMESPACE,
    RESUME_MAP,
    SCRATCHPAD,
    command_in,
    inside,
    interrupts_in,
    is_wrong_answer,
    take_interrupts,
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a person answered to one ``interrupt()`` of a call. ``is_own``: the tool's, not a graph's inside it.

    ``inside`` is the id of the interrupt in that graph, ``shown`` the `shown_digest` of what it asked.
    """

    value: Any
    is_own: bool
    inside: str
    shown: str


@dataclass
class NestedScratchpad:
    """Makes ``interrupt()`` inside one nested call count from zero and find the answers to this call, no others.

    ``answers`` come in batches, each given at one time. ``is_newly_answered``: the newest has reached no call before,
    so that a graph inside this one cannot have taken it.
    """

    key: str
    writes: Writes
    answers: Sequence[Sequence[Answer]] = ()
    is_newly_answered: bool = False
    _asked: int = field(default=0, init=False)

    @property
    def asked_itself(self) -> bool:
        """True when the tool has asked more than was answered: the interrupt it raised is its own."""
        return self._asked > len(self._own_answers)

    def applied_to(self, config: RunnableConfig) -> RunnableConfig:
        """Return the configuration for the nested call; unchanged outside a node."""
        node = inside(config)
        if node is None:
            return config
        first = number_of("nested", self.key)
        # A graph inside the tool remembers its earlier answers, and finds the newest in a map. LangGraph gives what it
        # finds there to a node that has taken it already, as the answer to the node's next question.
        given = self.answers[-1] if self.is_newly_answered and self.answers else ()
        newest = [answer for answer in given if not answer.is_own]
        answers = self._foreign_answers
        nested = NestedAnswers(answers, {answer.shown: answer.value for answer in newest})
        in_tasks = partial(_answered, answers=answers, nested=nested)
        configurable = renumbered(config, itertools.count(first).__next__, hide=False, wrap=in_tasks)
        scratchpad = replace(
            node.scratchpad,
            call_counter=itertools.count(first).__next__,
            subgraph_counter=itertools.count(first).__next__,
            interrupt_counter=self._next_interrupt,
            resume=self._own_answers,
            get_null_resume=nested,
        )
        by_id = {answer.inside: answer.value for answer in newest}
        own = {SCRATCHPAD: scratchpad, **own_state(node, self.writes), RESUME_MAP: by_id}
        return cast("RunnableConfig", {**config, "configurable": {**configurable, **own}})

    @property
    def _own_answers(self) -> list[Any]:
        return [answer.value for batch in self.answers for answer in batch if answer.is_own]

    @property
    def _foreign_answers(self) -> dict[str, Any]:
        return {answer.inside: answer.value for batch in self.answers for answer in batch if not answer.is_own}

    def _next_interrupt(self) -> int:
        self._asked += 1
        return self._asked - 1


def _answered(function: Callable[..., Any], answers: Mapping[str, Any], nested: NestedAnswers) -> Callable[..., Any]:
    """Let the function of a task that a nested call starts find its answers, and keep its questions to that call.

    The task belongs to the node of codeMode, which would report what it asks beside what the call asks.
    """
    from langgraph.config import get_config

    def find() -> None:
        configurable = cast("Any", get_config())["configurable"]
        scratchpad = configurable[SCRATCHPAD] = replace(configurable[SCRATCHPAD], get_null_resume=nested)
        while (place := interrupt_id(configurable[NAMESPACE], len(scratchpad.resume))) in answers:
            scratchpad.resume.append(answers[place])

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        find()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    @wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        find()
        try:
            return await function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    return arun if inspect.iscoroutinefunction(function) else run


# Knows neither the checkpoint nor how a pause reaches a person.

INTERRUPT_KIND = "langgraph-interrupt"
BEGUN_KIND = "langgraph-begun"
_STOPPED = (
    "this program was cut off in the middle; which calls had happened is not known, and a person decided not to run it"
    " again"
)

_CANNOT_ASK = (
    "this tool asks a person by itself, with interrupt(), which a parked program cannot wait for: gate it with approve"
)


@dataclass
class Made:
    """One call that was made: of which tool, with which arguments as everybody is shown them, and how it ended."""

    tool: str
    args: Mapping[str, Any]
    status: Literal["success", "error", "unfinished"] = "unfinished"

    def listed(self, tool_call_id: str) -> dict[str, Any]:
        """Return it as plain JSON; integers beyond 2^53 are text, with their places, for a checkpoint holds not all."""
        told = {"tool": self.tool, "tool_call_id": tool_call_id, "args": self.args, "status": self.status}
        return protect_integers(told)


class WrongAnswer(Exception):  # noqa: N818 - an answer, not a failure of this code
    """The newest answer does not fit the schema that the tool's ``interrupt()`` gave."""


@dataclass
class NestedRun:
    """Serves the nested calls of one part of a program.

    ``answers`` are what people answered to interrupts inside calls, in batches, ``responses`` what they gave in a
    call's place, both by the id of the nested call; the newest of those in ``newly_answered`` reached no call before.
    What comes of the calls beside their values is in ``left``, by their ids, and given to ``keep`` or ``akeep`` at
    once: what a call asks, as ``questions``, each with ``id``, ``value`` and ``response_schema``, ``is_own`` (not of a
    graph inside the tool), ``answers``, how many earlier batches hold, and these as ``given``. ``earlier`` are the
    commands of the parts before. ``beginning`` tells whether this part had begun before, which a person then decides
    about; ``is_stopped`` when that person has said no.
    ``names`` are those of the called tools, by the ids of calls that may wait. ``outer_tool_call_id`` is the model's
    call, where the core knows it by another id; ``can_ask`` is False where nobody could answer what a tool itself asks.
    ``made`` are the calls that were made here, by their ids, in the order in which they began.
    """

    caller: Caller
    config: RunnableConfig
    answers: Mapping[str, Sequence[Sequence[Answer]]] = field(default_factory=dict[str, Sequence[Sequence[Answer]]])
    responses: Mapping[str, str] = field(default_factory=dict[str, str])
    newly_answered: frozenset[str] = frozenset()
    earlier: Sequence[Any] = ()
    beginning: Beginning | None = None
    is_stopped: bool = False
    left: dict[str, Left] = field(default_factory=dict[str, Left])
    keep: Callable[[str, Left], None] | None = None
    akeep: Callable[[str, Left], Awaitable[None]] | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    outer_tool_call_id: str | None = None
    can_ask: bool = True
    made: dict[str, Made] = field(default_factory=dict[str, Made], init=False)
    _next: NestedRun | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=forkable_lock, init=False)

    def run(self, tool: BaseTool, arguments: Arguments, context: ToolCallContext) -> Any:
        """Make one call; it may block."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        if self.beginning is not None:
            self._begin(is_first=self.beginning.is_first())
        self._admit(tool, context)
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _Attempt(self, tool, arguments, context, answers, context.tool_call_id in self.newly_answered)
        try:
            with self._noted(attempt):
                return self._ended(attempt)
        finally:
            if self.keep is not None and (left := self.left.get(context.tool_call_id)):
                self.keep(context.tool_call_id, left)

    async def arun(self, tool: BaseTool, arguments: Arguments, context: ToolCallContext) -> Any:
        """Make one call without blocking."""
        if context.tool_call_id in self.responses:
            return self.responses[context.tool_call_id]
        if self.beginning is not None:
            self._begin(is_first=await self.beginning.ais_first())
        self._admit(tool, context)
        answers = self.answers.get(context.tool_call_id, ())
        attempt = _Attempt(self, tool, arguments, context, answers, context.tool_call_id in self.newly_answered)
        try:
            with self._noted(attempt):
                return await self._aended(attempt)
        finally:
            if self.akeep is not None and (left := self.left.get(context.tool_call_id)):
                await self.akeep(context.tool_call_id, left)

    def hand_over(self, waiting: Collection[str]) -> list[Left]:
        """Take what calls left that do not wait, the oldest first: one that runs anew leaves it again."""
        with self._lock:
            ended = {key: left for key, left in self.left.items() if key not in waiting and left.asked is None}
            self.left = {key: left for key, left in self.left.items() if key not in ended}
            self.earlier = (*self.earlier, *(command for left in ended.values() for command in left.commands))
            return [*ended.values()]

    def pass_on(self, other: NestedRun) -> None:
        """Let another outer call go on with this program: what its calls leave from now on is left there."""
        with self._lock:
            left, self.left, self._next = self.left, {}, other
        other.names = self.names
        other.answers = {**self.answers, **other.answers}
        other.responses = {**self.responses, **other.responses}
        for call_id, one in left.items():
            other.leave(call_id, self._readdressed(one, other))

    @property
    def has_begun(self) -> bool:
        """True once a call has looked here whether the part had begun before."""
        return self.beginning is not None and self.beginning.is_noted

    @property
    def asked(self) -> dict[str, Mapping[str, Any]]:
        """What calls ask while they wait, by their ids."""
        with self._lock:
            return {call_id: left.asked for call_id, left in self.left.items() if left.asked is not None}

    @contextmanager
    def _noted(self, attempt: _Attempt) -> Generator[None]:
        call = attempt.call
        made = self.made[str(call["id"])] = Made(call["name"], call["args"])
        try:
            yield
        except Exception:
            made.status = "error"
            raise
        made.status = "success"

    def _ended(self, attempt: _Attempt) -> Any:
        try:
            return attempt.finished(self._call(attempt))
        except WrongAnswer:
            attempt = attempt.without_newest_answers()
            return attempt.finished(self._call(attempt))

    async def _aended(self, attempt: _Attempt) -> Any:
        try:
            return attempt.finished(await self._acall(attempt))
        except WrongAnswer:
            attempt = attempt.without_newest_answers()
            return attempt.finished(await self._acall(attempt))

    def _admit(self, tool: BaseTool, context: ToolCallContext) -> None:
        if self.caller.limits is not None:
            self.caller.limits.admit(tool.name, context.tool_call_id)

    def _begin(self, *, is_first: bool) -> None:
        if self.is_stopped:
            raise CodeModeToolError(_STOPPED)
        if not is_first:
            request_interrupt({"kind": BEGUN_KIND})

    def _call(self, attempt: _Attempt) -> Any:
        with set_config_context(attempt.config) as variables:
            try:
                return variables.run(self.caller.call, attempt.capture.tool, attempt.call, attempt.config)
            except Exception as error:  # noqa: BLE001 - a pause is recognised, most others are raised again
                return attempt.failed(error)

    async def _acall(self, attempt: _Attempt) -> Any:
        with set_config_context(attempt.config) as variables:
            work = self.caller.acall(attempt.capture.tool, attempt.call, attempt.config)
            try:
                return await asyncio.create_task(cast("Coroutine[Any, Any, Any]", work), context=variables)
            except Exception as error:  # noqa: BLE001 - as above
                return attempt.failed(error)

    def leave(self, call_id: str, left: Left) -> None:
        """Note what a call left beside its value, for those after it and for the graph."""
        with self._lock:
            other = self._next
            if other is None:
                self.left.pop(call_id, None)  # of an earlier attempt, by a process that has ended
                if left:
                    self.left[call_id] = left
        if other is not None:
            other.leave(call_id, self._readdressed(left, other))

    def _readdressed(self, left: Left, other: NestedRun) -> Left:
        mine, its = self.outer_tool_call_id, other.outer_tool_call_id
        if not left.commands or mine is None or its is None:
            return left
        return replace(left, commands=[readdressed(one, mine, its) for one in left.commands])

    def written(self) -> list[Any]:
        """Return the commands of all calls that have ended."""
        with self._lock:
            return [*self.earlier, *(command for left in self.left.values() for command in left.commands)]


class _Attempt:
    """One attempt at one call: what it is made with, and how its end is read."""

    def __init__(
        self,
        run: NestedRun,
        tool: BaseTool,
        arguments: Arguments,
        context: ToolCallContext,
        answers: Sequence[Sequence[Answer]],
        is_newly_answered: bool,
    ) -> None:
        self._run = run
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._answers = answers
        self._id = context.tool_call_id
        self._outer_id = run.outer_tool_call_id or context.outer_tool_call_id
        self._commands: list[Any] = []
        writes = Writes(keep=self._commands.append, pairs=self._written)
        self._scratchpad = NestedScratchpad(self._id, writes, answers, is_newly_answered)
        self.config = self._scratchpad.applied_to(run.config)
        self.capture = Capture(tool, self.config, arguments)
        self.call = tool_call(tool.name, arguments.copy(), self._id)

    def without_newest_answers(self) -> _Attempt:
        """Return the same call as if the last questions had not been answered: what is still open is asked again."""
        return _Attempt(self._run, self._tool, self._arguments, self._context, self._answers[:-1], False)

    def finished(self, result: Any) -> Any:
        """Return what the program gets. Artifacts and state updates stay here."""
        message: ToolMessage | None = None
        for part in cast("list[Any]", result) if isinstance(result, list) else [result]:
            if isinstance(part, ToolMessage):
                message = part
            elif hasattr(part, "update"):
                command, found = kept(part, self._id, self._outer_id)
                self._commands.append(command)
                message = found or message
        artifact = None if message is None else message.artifact
        named = {"tool": self._tool.name, "tool_call_id": self._id, "artifact": artifact}
        left = Left(commands=self._commands, artifact=named if artifact is not None else None, counted=self._counted)
        self._run.leave(self._id, left)
        return None if message is None else guest_value(message, self.capture)

    def failed(self, error: Exception) -> Any:
        """Raise a pause for an interrupt and `WrongAnswer` for an answer that did not fit it; else the error itself.

        Return the command of a graph inside the tool that hands over to this one.
        """
        if self._answers and is_wrong_answer(error):
            raise WrongAnswer from error
        if (command := command_in(error)) is not None:
            return command
        interrupts = interrupts_in(error)
        if interrupts is None:
            # What it wrote before stands; a call that pauses runs anew.
            self._run.leave(self._id, Left(commands=self._commands, counted=self._counted))
            if isinstance(error, ToolException):
                raise told(error, self._tool.name) from error.__cause__
            if isinstance(error, NotImplementedError) and is_only_awaited(self._tool):
                raise CodeModeToolError(ONLY_AWAITED.format(self._tool.name)) from error
            raise error
        if not self._run.can_ask:
            raise CodeModeToolError(_CANNOT_ASK, details={"tool_name": self._tool.name}) from error
        if not interrupts:
            raise CodeModeToolError("a nested call paused without asking anything") from error
        asked = {
            "questions": [
                {"id": one.id, "value": one.value, "response_schema": one.response_schema} for one in interrupts
            ],
            "is_own": self._scratchpad.asked_itself,
            "answers": len(self._answers),
            "given": [[asdict(one) for one in batch] for batch in self._answers],
        }
        self._run.leave(self._id, Left(asked=asked))
        return request_interrupt({"kind": INTERRUPT_KIND})

    @property
    def _counted(self) -> str | None:
        return None if self._run.caller.limits is None else self._tool.name

    def _written(self) -> Pairs:
        return pairs_of([*self._run.written(), *self._commands], self._outer_id)
