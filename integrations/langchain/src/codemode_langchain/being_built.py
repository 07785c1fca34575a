"""What an agent is being built of, for words about misspelt names as early as can be: `create_agent` tells nothing.

Nothing that has to hold depends on it: who sees which calls is looked at in the running agent.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from types import FrameType
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware


class OfAnObject(property):
    """The tools of a middleware; `create_agent` that is given its class goes through those of the class first."""

    def __iter__(self) -> Iterator[Any]:
        """Say what is wrong, in place of Python, which has no name for it."""
        raise TypeError("an agent's middleware are objects: write CodeModeMiddleware() in place of CodeModeMiddleware")


def tools_beside(own: object) -> list[Any] | None:
    """Return the tools of the agent that is being built in this thread, but for those of its own middleware ``own``.

    None where nobody can tell.
    """
    frame = _frame_with(own)
    if frame is None:
        return None
    given: Any = frame.f_locals.get("tools")
    others = [
        one
        for middleware in listed_with(own)
        if middleware is not own
        for one in getattr(middleware, "tools", None) or ()
    ]
    return [*(cast("Collection[Any]", given) if isinstance(given, Collection) else ()), *others]


def may_get_others(own: object) -> bool:
    """Tell whether middleware of the agent may give its model tools that nobody knows while it is built."""
    kinds: list[type] = [type(one) for one in listed_with(own)]
    return any(_wraps_models(kind) and not _is_published(kind) for kind in kinds)


def _wraps_models(kind: type) -> bool:
    """Tell whether a class may change requests, in what it adds to the framework's own or to one of this package."""
    names = ("wrap_model_call", "awrap_model_call")
    ours = __name__.partition(".")[0]
    theirs = takewhile(lambda one: one is not AgentMiddleware and _package_of(one) != ours, kind.__mro__)
    return any(name in vars(one) for one in theirs for name in names)


def _package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_published(kind: type) -> bool:
    """Tell whether it is one of LangChain's own, whose tools are registered; a decorated function is none."""
    is_theirs = _package_of(kind) in ("langchain", "deepagents")
    return is_theirs and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def listed_with(own: object) -> Sequence[Any]:
    """Return the middleware of the agent that is being built in this thread: `create_agent` tells them nothing.

    The innermost function with a ``middleware`` that holds our own: `create_agent` itself, whatever was put around it.
    """
    frame = _frame_with(own)
    return () if frame is None else tuple(frame.f_locals["middleware"])


def _frame_with(own: object) -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None:
        listed: Any = frame.f_locals.get("middleware")
        # Any collection does for `create_agent`.
        if isinstance(listed, Collection) and any(one is own for one in cast("Collection[Any]", listed)):
            return frame
        frame = frame.f_back
    return None
