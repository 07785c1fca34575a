"""Match answers to their questions, and keep calls that share a node apart."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig

from codemode.plugins import forkable_lock

from .approvals import Question
from .checkpoints import forget_plain_answer, forget_plain_answer_async, save_now, save_now_async
from .graph import digest
from .pregel import NAMESPACE, SCRATCHPAD, Inside, inside

# LangGraph keeps the value of a plain ``Command(resume=...)`` in the checkpoint and gives it to the first
# ``interrupt()`` without an answer, in later runs too. Each question of a program is a task of its own: a later run
# finds the first question answered, and would give that value to the second. Here it counts once, in the run that it
# was given to, for the one interrupt that waited when that run began.

_PLAIN = "plain"
_lock = forkable_lock()
_taken: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # by the loop that was given them


class NestedAnswers:
    """The answers that a nested call has for programs inside it.

    ``by_id`` are those of graphs that keep checkpoints, by the ids of interrupts, ``by_shown`` the newest, by the
    `shown_digest` of what was asked. It is in a scratchpad where LangGraph looks for a plain answer. There is none for
    nested calls: what a run was given is for the questions of the program.
    """

    def __init__(self, by_id: Mapping[str, Any], by_shown: Mapping[str, Any]) -> None:
        self._by_id = dict(by_id)
        self._by_shown = dict(by_shown)

    def __call__(self, consume: bool = False) -> None:  # noqa: ARG002 - as LangGraph calls it
        return None

    def take(self, interrupt_id: str, shown: Any, *, keeps_checkpoints: bool) -> Any:
        """Take the answer to a question, None where there is none."""
        if keeps_checkpoints:
            return self._by_id.pop(interrupt_id, None)
        return self._by_shown.pop(shown_digest(shown), None)


def ask_person(question: Question, node: RunnableConfig) -> dict[str, Any]:
    """Wait for the answer to one question, as the function of a task of its own in a node.

    ``of`` tells which it answers. It is saved before it counts: what it lets run may be the last thing that this
    process does.
    """
    config = _config()
    given = _given(config, node, question.value)
    if given is not None and given.loop is not None:
        forget_plain_answer(given.loop)
    answer = {"of": question.key, "answer": _interrupt(config, question, given)}
    save_now(config, answer)
    return answer


async def ask_person_async(question: Question, node: RunnableConfig) -> dict[str, Any]:
    """Do what `ask_person` does without blocking."""
    config = _config()
    given = _given(config, node, question.value)
    if given is not None and given.loop is not None:
        await forget_plain_answer_async(given.loop)
    answer = {"of": question.key, "answer": _interrupt(config, question, given)}
    await save_now_async(config, answer)
    return answer


def shown_digest(shown: Any) -> str:
    """Return what tells one question from another by what a person is shown, under whichever id it is asked."""
    return digest({**shown, "tool_call_id": None} if isinstance(shown, dict) else shown)


def interrupt_id(namespace: str, answered: int) -> str:
    """Return the id of a task's next ``interrupt()``, as LangGraph makes it."""
    from langgraph.types import Interrupt

    return Interrupt.from_ns(None, ns=f"{namespace}|{answered}" if answered else namespace).id


def _config() -> RunnableConfig:
    from langgraph.config import get_config

    return get_config()


@dataclass(frozen=True)
class _Given:
    """An answer, and the loop whose checkpoint has it as a plain one."""

    answer: Any
    loop: Any = None


def _interrupt(config: RunnableConfig, question: Question, given: _Given | None) -> Any:
    from langgraph.types import interrupt

    configurable = config.get("configurable", {})
    scratchpad = configurable[SCRATCHPAD]
    if given is not None:
        scratchpad.resume.append(given.answer)
    configurable[SCRATCHPAD] = replace(scratchpad, get_null_resume=NestedAnswers({}, {}))
    return interrupt(question.value, response_schema=question.response_schema)


def _given(config: RunnableConfig, node: RunnableConfig, shown: Any) -> _Given | None:
    """Take the answer that was given to the question of this task otherwise than by the id of its interrupt."""
    own = inside(config)
    if own is None or own.scratchpad.resume:
        return None
    own_id = interrupt_id(config.get("configurable", {})[NAMESPACE], 0)
    around: Inside | None = own
    is_tried_again = config.get("metadata", {}).get("run_attempt", 1) > 1
    while around is not None:
        in_call = around.scratchpad.get_null_resume
        if isinstance(in_call, NestedAnswers):
            answer = in_call.take(own_id, shown, keeps_checkpoints=own.keeps_checkpoints)
            return None if answer is None else _Given(answer)
        if around.resumed_with is not None:
            if is_tried_again:
                return None  # LangGraph's platform brings the answer again that the attempt before may have taken
            given = _of_run(own, own_id, around, shown)
            if given is not None and given.loop is not None:
                for scratchpad in (own.scratchpad, node.get("configurable", {})[SCRATCHPAD]):
                    scratchpad.get_null_resume(True)  # else LangGraph gives it to the next one who asks
            return given
        around = inside(around.loop.config)
    return None


def _of_run(own: Inside, own_id: str, resumed: Inside, shown: Any) -> _Given | None:
    waiting, answers = resumed.waiting, resumed.resumed_with
    mine = waiting.get(own_id)
    if mine is None and not own.keeps_checkpoints:  # it asks under another id each time
        mine = next((one for one in waiting.values() if shown_digest(one.value) == shown_digest(shown)), None)
    if mine is None:
        return None
    if resumed.is_resumed_by_id:
        return _Given(answers[mine.id]) if mine.id in answers and _is_first(resumed.loop, mine.id) else None
    if (mine.id != own_id and len(waiting) > 1) or not _is_first(resumed.loop, _PLAIN):
        return None
    return _Given(answers, resumed.loop)


def _is_first(loop: Any, answer: str) -> bool:
    """Note that an answer is taken. False when it has been before."""
    with _lock:
        taken = _taken.setdefault(loop, set())
        is_first = answer not in taken
        taken.add(answer)
        return is_first


# The first that raises an interrupt ends the node, and LangGraph cancels what runs in it. Knows no program.

_asking: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # whose question waits, by the run's loop
_at_work: dict[int, set[Sibling]] = {}  # by the scratchpad of the node, which its calls hold


class Sibling:
    """One call in its node, where there is one. ``with`` it while the call is at work."""

    def __init__(self, config: RunnableConfig) -> None:
        self._scratchpad = config.get("configurable", {}).get(SCRATCHPAD)
        self.ended = asyncio.Event()

    def __enter__(self) -> Self:
        if self._scratchpad is not None:
            _at_work.setdefault(id(self._scratchpad), set()).add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    async def others_ended(self) -> None:
        """Wait until no other call of the node is at work; this one no longer is."""
        self._leave()
        while others := _at_work.get(id(self._scratchpad)):
            await next(iter(others)).ended.wait()

    def _leave(self) -> None:
        at_work = _at_work.get(id(self._scratchpad), set())
        at_work.discard(self)
        if not at_work:
            _at_work.pop(id(self._scratchpad), None)
        self.ended.set()


def may_ask_now(config: RunnableConfig, tool_call_id: str, asked: Iterable[Question]) -> bool:
    """Tell whether a program may ask, where only one question of an agent's step may wait: none of another does.

    Only of an agent that is in no other graph: there a question that is asked always ends the run, and the program
    that may not ask now runs again when it is answered.
    """
    questions = list(asked)
    keys, mine = {one.key for one in questions}, {shown_digest(one.value) for one in questions}
    own = inside(config)
    if own is None or not own.keeps_checkpoints or inside(own.loop.config) is not None:
        return True
    if any(isinstance(one, dict) and cast("Any", one).get("of") in keys for one in own.written_in_step()):
        return True  # it was answered, and only finds the answers again
    waiting, given = own.waiting, own.resumed_with
    if any(shown_digest(one.value) in mine for one in waiting.values()):
        return True  # it has asked before
    if given is None or own.is_resumed_by_id:
        waiting = {key: one for key, one in waiting.items() if key not in (given or {})}
        if waiting:
            return False
    with _lock:
        return _asking.setdefault(own.loop, tool_call_id) == tool_call_id
