"""Agents with the pair exec and wait, and models that are told what to ask for by what they were answered."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from codemode_langchain import ExecWaitMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from scripted_agent import ScriptedModel, agent, asks

Step = AIMessage | Callable[[Any], Any]
"""A message, or a function, perhaps async, that makes one of the newest answer."""


PATIENTLY: Step = AIMessage("wait until no call is in flight")
"""Waits for all that the newest message of the model left with calls in flight, and again until nothing is left."""


class DirectedModel(ScriptedModel):
    """Says what its steps say, one after the other, and then the end."""

    steps: list[Any] = []  # noqa: RUF012 - a pydantic field, copied for each model
    answers: list[Any] = []  # noqa: RUF012 - as above; all that it has been told

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return _said(self._next(messages))

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        said = self._next(messages)
        return _said(await said if inspect.isawaitable(said) else said)

    def _next(self, messages: Any) -> Any:
        self.answers = answers(messages)
        if self.steps and self.steps[0] is PATIENTLY:
            if left := _left(messages):
                return asks(*(("wait", {"runId": one}) for one in left))
            self.steps.pop(0)
        step = self.steps.pop(0) if self.steps else AIMessage("done")
        return step if isinstance(step, AIMessage) else step(self.answers[-1] if self.answers else None)


def _left(messages: Any) -> list[str]:
    """The programs that the newest message of the model left with calls in flight."""
    last = max(at for at, one in enumerate(messages) if isinstance(one, AIMessage))
    told = [one for one in answers(messages[last:]) if isinstance(one, dict) and one["status"] == "waiting"]
    return [*dict.fromkeys(one["runId"] for one in told if one["reason"] == "pending_tools")]


def _said(message: Any) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def directed(*steps: Step) -> DirectedModel:
    return DirectedModel(messages=iter([]), shown=[], disable_streaming=True, steps=[*steps])


def runs(*programs: str, **more: Any) -> AIMessage:
    """One message of the model with one call of exec for each program."""
    return asks(*(("exec", {"code": one, **more}) for one in programs))


def waits(answer: Any) -> AIMessage:
    """A message that waits for the program of an answer."""
    return asks(("wait", {"runId": answer["runId"]}))


def read(message: ToolMessage) -> Any:
    """What a message of exec or wait says; its text where that is no JSON."""
    try:
        return json.loads(message.content)
    except ValueError:
        return message.content


def answers(given: Any) -> list[Any]:
    """What all calls of tools were answered, in order."""
    messages = given["messages"] if isinstance(given, dict) else given
    return [read(one) for one in messages if isinstance(one, ToolMessage)]


def told(result: Any) -> Any:
    """A result without its telemetry."""
    return {name: one for name, one in result.items() if name != "telemetry"}


def pair_agent(steps: Sequence[Step], tools: Sequence[Any], *others: Any, **settings: Any) -> Any:
    """An agent with the pair; ``own`` is its middleware, ``others`` are listed after it."""
    own = settings.pop("own", None) or ExecWaitMiddleware()
    return agent((), tools, own, *others, model=settings.pop("model", None) or directed(*steps), **settings)
