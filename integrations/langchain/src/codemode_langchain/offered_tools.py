"""What a model is offered in the end, whatever other middleware makes of it: checked where the agent asks its model."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, cast

from langchain.agents.middleware.types import ModelRequest
from langchain.agents.structured_output import AutoStrategy, ToolStrategy

from codemode import InvalidConfigError

from .shown_tools import name_of

_AGENTS = "langchain.agents.factory"
_MARK = "_codemode_offered"


class Offer:
    """The tools that one request may hold: no more and no fewer, but for those that structure the answer."""

    def __init__(self, tools: Iterable[Any], response_format: Any, kind: str) -> None:
        self._names = Counter(map(offered_name, tools))
        self._response_format = response_format
        self._kind = kind

    def check(self, tools: Iterable[Any]) -> None:
        """Raise `InvalidConfigError`, a `ValueError`, for other tools."""
        found = Counter(map(offered_name, tools))
        added, taken = found - self._names, self._names - found
        if added:
            added -= Counter(_structured(self._response_format))
        if added or taken:
            changed = [*(f"adds {name!r}" for name in added), *(f"takes {name!r}" for name in taken)]
            raise InvalidConfigError(
                f"other middleware {' and '.join(changed)} before the model is asked, and with {self._kind} it is"
                f" offered exactly {', '.join(self._names)}: list middleware that changes tools before {self._kind}"
            )


class CheckedRequest(ModelRequest[Any]):
    """A request of a model that is checked when the agent makes it, whichever model it goes to by then."""

    @classmethod
    def of(cls, request: ModelRequest[Any], offer: Offer) -> CheckedRequest:
        """Return a request that is checked against an offer."""
        return _checked(cls(**{one.name: getattr(request, one.name) for one in fields(ModelRequest)}), offer)

    def __setattr__(self, name: str, value: Any) -> None:
        """Check a model that is put into its place, too."""
        offer = self.__dict__.get(_MARK)
        super().__setattr__(name, guarded(value, offer) if name == "model" and offer is not None else value)

    def override(self, **overrides: Any) -> ModelRequest[Any]:
        """Return a request with these fields, which is checked as this one is."""
        return _checked(super().override(**overrides), self.__dict__[_MARK])


def _checked(request: Any, offer: Offer) -> Any:
    request.__dict__.update({_MARK: offer, "model": guarded(request.model, offer)})
    return request


def guarded(model: Any, offer: Offer) -> Any:
    """Return a stand-in of the same class, that the agent cannot give other tools than those offered.

    Other middleware may use it as it likes: only what the agent itself asks for is a request of the agent.
    """
    original: Any = getattr(model, "__dict__", {}).get(_MARK, model)
    stand_in = copy.copy(original)

    def bind_tools(tools: Any, **settings: Any) -> Any:
        if _asks_agent():
            offer.check(tools)
        return original.bind_tools(tools, **settings)

    def bind(**settings: Any) -> Any:
        if _asks_agent():
            offer.check(())
        return original.bind(**settings)

    own: dict[str, Callable[..., Any] | Any] = {"bind_tools": bind_tools, "bind": bind, _MARK: original}
    for name, value in own.items():
        object.__setattr__(stand_in, name, value)
    return stand_in


def offered_name(one: Any) -> str:
    """Return what a tool is known by to a model; a provider's own may have no other name than its type."""
    kind = cast("Mapping[str, Any]", one).get("type") if isinstance(one, Mapping) else None
    return name_of(one) or (kind if isinstance(kind, str) else type(cast("Any", one)).__name__)


def _asks_agent() -> bool:
    # Who asks: `create_agent` itself, or other middleware for purposes of its own.
    here = inspect.currentframe()
    asking = None if here is None or here.f_back is None else here.f_back.f_back
    return asking is not None and asking.f_globals.get("__name__") == _AGENTS


def _structured(response_format: Any) -> list[str]:
    """Return the names of the tools that a model answers with in place of a text."""
    if response_format is None:
        return []
    given: Any = cast("Any", response_format).schema if isinstance(response_format, AutoStrategy) else response_format
    strategy: Any = given if hasattr(given, "schema_specs") else ToolStrategy(given)
    return [one.name for one in strategy.schema_specs]
