"""Other middleware that would not see what it is there to see: refused when the agent is built. Runs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, cast

from langchain.agents import middleware as built_in
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolCallLimitMiddleware

from .tool import NAME

# What each of them does to the tools that it names, by its class; not every version of LangChain has all.
_WRAPPING = {
    "LLMToolEmulator": "they would run for real",
    "ToolRetryMiddleware": "they would not be tried again",
    "ToolErrorMiddleware": "their errors would not be handled",
}


def refuse_blind_neighbours(own: AgentMiddleware[Any, Any, Any], keep: Collection[str], kind: type) -> None:
    """Raise `ValueError` for middleware of the agent that never sees nested calls and is there to see them.

    ``kind`` is code mode's own, of which an agent has one.
    """
    listed = _listed_with(own)
    place = next((index for index, one in enumerate(listed) if one is own), None)
    if place is None:
        return
    if sum(isinstance(one, kind) for one in listed) > 1:
        raise ValueError(
            f"the agent has {kind.__name__} twice, and one would run programs by its own rules in the other's place:"
            " give one of them the rules of both"
        )
    seen = {NAME, *keep}
    for index, one in enumerate(listed):
        if isinstance(one, HumanInTheLoopMiddleware):
            _check_review(one, seen, is_before=index < place)
        elif isinstance(one, ToolCallLimitMiddleware):
            _check_limit(one, seen)
        elif index < place:
            _check_wrapping(one, seen)


def _check_review(review: Any, seen: Collection[str], *, is_before: bool) -> None:
    gated = sorted(set(review.interrupt_on) - set(seen))
    if not gated:
        return
    if getattr(review, "interrupt_mode", "batched") != "per_call":
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated)} in its batched mode, which never sees calls made by"
            " a program: they would run without approval. Give it interrupt_mode='per_call' and list it after"
            " CodeModeMiddleware, or use CodeModeMiddleware(approve=...) instead."
        )
    if is_before:
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated)} and is listed before CodeModeMiddleware, where it"
            " never sees calls made by a program: they would run without approval. List it after."
        )


def _check_limit(limit: Any, seen: Collection[str]) -> None:
    """It counts what the model asks for. A nested call is asked for by a program."""
    if limit.tool_name in seen:
        return
    counted = "all tools" if limit.tool_name is None else repr(limit.tool_name)
    raise ValueError(
        f"ToolCallLimitMiddleware limits {counted}, and never counts calls made by a program: the limit would not hold."
        f" Limit programs with ToolCallLimitMiddleware(tool_name={NAME!r}, ...) and the calls of each with"
        " CodeModeMiddleware(options={'execution_policy': {'max_bridge_requests': ...}}); a tool named in"
        " CodeModeMiddleware(keep=[...]) can be limited as ever."
    )


def _check_wrapping(one: Any, seen: Collection[str]) -> None:
    for name, loss in _WRAPPING.items():
        if isinstance(one, getattr(built_in, name, ())):
            named = getattr(one, "tools_to_emulate", None) or getattr(one, "_tool_filter", None) or ()
            if missed := sorted(set(named) - set(seen)):
                raise ValueError(
                    f"{name} is listed before CodeModeMiddleware, where it never sees calls of {', '.join(missed)}"
                    f" made by a program: {loss}. List it after."
                )


def _listed_with(own: object) -> Sequence[Any]:
    """Return the middleware of the agent that is being built in this thread: `create_agent` tells them nothing.

    The innermost function with a ``middleware`` that holds our own: `create_agent` itself, whatever was put around it.
    """
    frame = inspect.currentframe()
    while frame is not None:
        listed: Any = frame.f_locals.get("middleware")
        if isinstance(listed, list | tuple) and any(one is own for one in cast("Sequence[Any]", listed)):
            return tuple(cast("Sequence[Any]", listed))
        frame = frame.f_back
    return ()
