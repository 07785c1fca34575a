"""A scratchpad per nested call: its `interrupt()` counts from zero and finds the answers to that call, no others."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from .answers import NestedAnswers, interrupt_id
from .channels import Writes, own_state
from .graph import number_of, renumbered
from .interrupts import take_interrupts
from .pregel import NAMESPACE, RESUME_MAP, SCRATCHPAD, inside


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
