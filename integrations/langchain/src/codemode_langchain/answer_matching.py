"""Match answers to questions, and coordinate outer calls that share a node."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig

from codemode.plugins import create_fork_safe_lock

from .approvals import Question
from .checkpoints import clear_resume_value, clear_resume_value_async, save_task_result, save_task_result_async
from .langgraph_internals import NAMESPACE, SCRATCHPAD, NodeContext, get_node_context
from .node_tasks import compute_digest

# LangGraph stores the value of a plain ``Command(resume=...)`` in the checkpoint and passes it to the first unanswered
# ``interrupt()``, in later runs too. Each question of a program is its own task, so a later run would pass the value to
# the second question. Here the value is used once, in its own run, for the interrupt that was pending at its start.

_PLAIN_ANSWER_KEY = "plain"
_lock = create_fork_safe_lock()
_taken_answers: weakref.WeakKeyDictionary[Any, set[str]] = (
    weakref.WeakKeyDictionary()
)  # by the loop that was given them


class NestedAnswers:
    """The answers of a nested call for programs inside it.

    ``by_id``: answers by interrupt id, for graphs with checkpoints. ``by_display_digest``: the latest answers by
    `compute_display_digest`. The object replaces the scratchpad's source of plain answers, which nested calls must not
    take: they belong to the questions of the outer program.
    """

    def __init__(self, by_id: Mapping[str, Any], by_display_digest: Mapping[str, Any]) -> None:
        self._by_id = dict(by_id)
        self._by_display_digest = dict(by_display_digest)

    def __call__(self, consume: bool = False) -> None:  # noqa: ARG002 - as LangGraph calls it
        return None

    def take(self, interrupt_id: str, displayed: Any, *, keeps_checkpoints: bool) -> Any:
        """Take the answer to a question, or None."""
        if keeps_checkpoints:
            return self._by_id.pop(interrupt_id, None)
        return self._by_display_digest.pop(compute_display_digest(displayed), None)


def take_or_ask_and_save_answer(question: Question, node: RunnableConfig) -> dict[str, Any]:
    """Wait for the answer to one question, as the function of a task in a node.

    The result's ``of`` is the question's key. It is saved before it is used: the process may die in the call that it
    allows.
    """
    config = _get_config()
    given_answer = _take_matching_answer(config, node, question.value)
    if given_answer is not None and given_answer.loop is not None:
        clear_resume_value(given_answer.loop)
    answer = {"of": question.key, "answer": _ask_by_interrupt(config, question, given_answer)}
    save_task_result(config, answer)
    return answer


async def take_or_ask_and_save_answer_async(question: Question, node: RunnableConfig) -> dict[str, Any]:
    """Do what `take_or_ask_and_save_answer` does without blocking."""
    config = _get_config()
    given_answer = _take_matching_answer(config, node, question.value)
    if given_answer is not None and given_answer.loop is not None:
        await clear_resume_value_async(given_answer.loop)
    answer = {"of": question.key, "answer": _ask_by_interrupt(config, question, given_answer)}
    await save_task_result_async(config, answer)
    return answer


def compute_display_digest(displayed: Any) -> str:
    """Return a digest of a displayed question, independent of its id."""
    return compute_digest({**displayed, "tool_call_id": None} if isinstance(displayed, dict) else displayed)


def compute_interrupt_id(namespace: str, answer_count: int) -> str:
    """Return the id of a task's next ``interrupt()``, as LangGraph computes it."""
    from langgraph.types import Interrupt

    return Interrupt.from_ns(None, ns=f"{namespace}|{answer_count}" if answer_count else namespace).id


def _get_config() -> RunnableConfig:
    from langgraph.config import get_config

    return get_config()


@dataclass(frozen=True)
class _MatchedAnswer:
    """An answer, and the loop whose checkpoint stores it as a plain one."""

    answer: Any
    loop: Any = None


def _ask_by_interrupt(config: RunnableConfig, question: Question, given_answer: _MatchedAnswer | None) -> Any:
    from langgraph.types import interrupt

    configurable = config.get("configurable", {})
    scratchpad = configurable[SCRATCHPAD]
    if given_answer is not None:
        scratchpad.resume.append(given_answer.answer)
    configurable[SCRATCHPAD] = replace(scratchpad, get_null_resume=NestedAnswers({}, {}))
    return interrupt(question.value, response_schema=question.response_schema)


def _take_matching_answer(config: RunnableConfig, node: RunnableConfig, displayed: Any) -> _MatchedAnswer | None:
    """Take the answer to this task's question, unless it was given by interrupt id."""
    node_context = get_node_context(config)
    if node_context is None or node_context.scratchpad.resume:
        return None
    task_interrupt_id = compute_interrupt_id(config.get("configurable", {})[NAMESPACE], 0)
    enclosing_node: NodeContext | None = node_context
    is_retry = config.get("metadata", {}).get("run_attempt", 1) > 1
    while enclosing_node is not None:
        nested_answers = enclosing_node.scratchpad.get_null_resume
        if isinstance(nested_answers, NestedAnswers):
            answer = nested_answers.take(task_interrupt_id, displayed, keeps_checkpoints=node_context.keeps_checkpoints)
            return None if answer is None else _MatchedAnswer(answer)
        if enclosing_node.resume_value is not None:
            if is_retry:
                return None  # a retry on LangGraph's platform repeats an answer that may be used
            given_answer = _take_answer_from_resume_value(node_context, task_interrupt_id, enclosing_node, displayed)
            if given_answer is not None and given_answer.loop is not None:
                for scratchpad in (node_context.scratchpad, node.get("configurable", {})[SCRATCHPAD]):
                    scratchpad.get_null_resume(True)  # else LangGraph passes it to the next interrupt
            return given_answer
        enclosing_node = get_node_context(enclosing_node.loop.config)
    return None


def _take_answer_from_resume_value(
    node_context: NodeContext, task_interrupt_id: str, resumed_node: NodeContext, displayed: Any
) -> _MatchedAnswer | None:
    pending, answers = resumed_node.pending_interrupts, resumed_node.resume_value
    task_interrupt = pending.get(task_interrupt_id)
    if task_interrupt is None and not node_context.keeps_checkpoints:  # without checkpoints the id differs each time
        task_interrupt = next(
            (
                interrupt
                for interrupt in pending.values()
                if compute_display_digest(interrupt.value) == compute_display_digest(displayed)
            ),
            None,
        )
    if task_interrupt is None:
        return None
    if resumed_node.has_resume_map:
        return (
            _MatchedAnswer(answers[task_interrupt.id])
            if task_interrupt.id in answers and _claim_answer(resumed_node.loop, task_interrupt.id)
            else None
        )
    if (task_interrupt.id != task_interrupt_id and len(pending) > 1) or not _claim_answer(
        resumed_node.loop, _PLAIN_ANSWER_KEY
    ):
        return None
    return _MatchedAnswer(answers, resumed_node.loop)


def _claim_answer(loop: Any, answer_key: str) -> bool:
    """Mark an answer as used. False if it was used before."""
    with _lock:
        taken_keys = _taken_answers.setdefault(loop, set())
        is_first = answer_key not in taken_keys
        taken_keys.add(answer_key)
        return is_first


# The first call that raises an interrupt ends the node, and LangGraph cancels the others.

_asking_call_ids: weakref.WeakKeyDictionary[Any, str] = (
    weakref.WeakKeyDictionary()
)  # call with the pending question, by the run's loop
_running_calls: dict[
    int, set[RunningOuterCallRegistration]
] = {}  # by id of the node's scratchpad, which its calls hold


class RunningOuterCallRegistration:
    """One running outer call of a node; a context manager."""

    def __init__(self, config: RunnableConfig) -> None:
        self._scratchpad = config.get("configurable", {}).get(SCRATCHPAD)
        self.ended = asyncio.Event()

    def __enter__(self) -> Self:
        if self._scratchpad is not None:
            _running_calls.setdefault(id(self._scratchpad), set()).add(self)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._unregister()

    async def unregister_and_wait_for_others(self) -> None:
        """Stop counting this call as running, and wait for the other calls of the node."""
        self._unregister()
        while other_calls := _running_calls.get(id(self._scratchpad)):
            await next(iter(other_calls)).ended.wait()

    def _unregister(self) -> None:
        running_calls = _running_calls.get(id(self._scratchpad), set())
        running_calls.discard(self)
        if not running_calls:
            _running_calls.pop(id(self._scratchpad), None)
        self.ended.set()


def claim_asking_turn(config: RunnableConfig, tool_call_id: str, questions_to_ask: Iterable[Question]) -> bool:
    """Claim the one question that may be pending in an agent's step; False if another program has it.

    Applies to agents that are in no other graph: a question ends their run, and a program that may not ask now runs
    again after the answer.
    """
    questions = list(questions_to_ask)
    keys, display_digests = {item.key for item in questions}, {compute_display_digest(item.value) for item in questions}
    node_context = get_node_context(config)
    if (
        node_context is None
        or not node_context.keeps_checkpoints
        or get_node_context(node_context.loop.config) is not None
    ):
        return True
    if any(isinstance(item, dict) and cast("Any", item).get("of") in keys for item in node_context.get_step_results()):
        return True  # answered before: it reads the stored answers
    pending, resume_value = node_context.pending_interrupts, node_context.resume_value
    if any(compute_display_digest(item.value) in display_digests for item in pending.values()):
        return True  # its own question is pending
    if resume_value is None or node_context.has_resume_map:
        pending = {key: item for key, item in pending.items() if key not in (resume_value or {})}
        if pending:
            return False
    with _lock:
        return _asking_call_ids.setdefault(node_context.loop, tool_call_id) == tool_call_id
