"""Which of an agent's tools are in programs, which a model is offered, and conflicts."""

from __future__ import annotations

import copy
import inspect
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from langchain.agents import middleware as built_in
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain.agents.middleware.types import AgentState, ModelRequest, PrivateStateAttr
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.tools import BaseTool
from typing_extensions import TypedDict

from codemode import Tool as ProgramTool
from codemode.plugins import ToolSelection, forkable_lock
from codemode.types import InvalidConfigError

from .approvals import ReviewRule
from .conversion import annotations_of
from .graph_state import SHOWN, graph_state, merged, newest

# Tools that other middleware made for one step are known by name there, and in this process as they were.

_MAX_STEPS = 256


class Shown(TypedDict):
    """One step: the names that programs may call, and those of tools that the model may call by itself."""

    step: str
    programs: list[str]
    native: list[str]


class CodeModeState(AgentState[Any]):
    """The agent's state with what programs need of it, which no input and no output has.

    What its last step showed, what programs have left, how often their calls called which tools where limits have not
    counted that yet, by the ids of the calls that ran them, and what is said where a limit has ended the run.
    """

    code_mode_shown: NotRequired[Annotated[Shown, PrivateStateAttr]]
    code_mode_state: NotRequired[Annotated[dict[str, str | None], PrivateStateAttr, merged]]
    code_mode_calls: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, merged]]
    code_mode_end: NotRequired[Annotated[str | None, PrivateStateAttr, newest]]


class ShownTools:
    """Remembers for each step what its model was shown, and those tools that its agent does not have."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, dict[str, BaseTool]] = OrderedDict()
        self._lock = forkable_lock()

    def note(
        self, programs: Sequence[BaseTool], native: Sequence[Any], registered: Collection[str]
    ) -> dict[str, Shown]:
        """Return the update of the agent's state for a step that shows these tools.

        ``registered`` are the names of the agent's own, which it brings along when they are called.
        """
        step = secrets.token_hex(8)
        made = {one.name: one for one in programs if one.name not in registered}
        with self._lock:
            if made:
                self._steps[step] = made
            while len(self._steps) > _MAX_STEPS:
                self._steps.popitem(last=False)
        names = [name for one in native if (name := name_of(one)) is not None]
        return {SHOWN: Shown(step=step, programs=[one.name for one in programs], native=names)}

    def callable_tools(self, request: Any, registered: Mapping[str, BaseTool]) -> list[BaseTool]:
        """Return the tools that a program of the last step may call; all that are registered when nothing was shown.

        A registered tool goes before one of the same name that was made for the step, as everywhere in an agent.
        """
        shown = shown_to(request)
        if shown is None:
            return list(registered.values())
        with self._lock:
            made = self._steps.get(shown["step"], {})
        tools = {**made, **registered}
        return [tools[name] for name in shown["programs"] if name in tools]


def shown_to(request: Any) -> Shown | None:
    """Return what the last step of an agent showed before a call, None where no step came before."""
    state = graph_state(request.runtime.config, request.state)
    return cast("Any", state).get(SHOWN) if isinstance(state, Mapping) else getattr(state, SHOWN, None)


def name_of(one: Any) -> str | None:
    """Return the name of a tool, or of one that a provider describes as a mapping."""
    if not isinstance(one, Mapping):
        return getattr(one, "name", None) or getattr(one, "__name__", None)
    described = cast("Mapping[str, Any]", one)
    function = described.get("function")
    name = described.get("name", cast("Any", function).get("name") if isinstance(function, Mapping) else None)
    return name if isinstance(name, str) else None


_log = logging.getLogger("codemode.tools")

# What each of them does to the tools that it names, by its class; not every version of LangChain has all.
_WRAPPING = {
    "AutoModeMiddleware": "nobody would judge them",
    "LLMToolEmulator": "they would run for real",
    "ToolRetryMiddleware": "they would not be tried again",
    "ToolErrorMiddleware": "their errors would not be handled",
}


@dataclass(frozen=True, kw_only=True)
class HidingWords:
    """What one kind of middleware that hides tools is called, and its parts are, in what people are told.

    ``runs`` is the tool that runs ``programs``, ``limit`` the option that bounds the calls of each, ``taken`` what is
    said of another tool of the agent whose ``name`` is one of its own by ``is_own``; programs call tools of the names
    that ``is_callable`` tells. ``keep`` is the argument that names what stays with the model. Where it
    ``adopts_reviews``, what a review of the model's calls says of nested tools holds for programs too; where it
    ``counts_calls``, a limit of calls counts nested ones.
    """

    kind: str
    programs: str
    runs: str
    limit: str
    taken: str
    is_own: Callable[[str], bool]
    is_callable: Callable[[str], bool] = ProgramTool.is_callable_name
    keep: str = "keep"
    adopts_reviews: bool = False
    counts_calls: bool = True


def refuse_second(hiding: Sequence[HidingWords]) -> None:
    """Raise `ValueError` where an agent has more than one middleware that hides tools."""
    first, *others = [one.kind for one in hiding] or [""]
    if first in others:
        raise ValueError(
            f"the agent has {first} twice, and one would run programs by its own rules in the other's place:"
            " give one of them the rules of both"
        )
    if others:
        raise ValueError(
            f"the agent has {first} and {others[0]}, and each stands for the same tools: what one hides and gates the"
            " other would run by its own rules. Use one of them"
        )


def reviewed_by_neighbours(
    own: AgentMiddleware[Any, Any, Any], listed: Sequence[Any], seen: Iterable[str], words: HidingWords
) -> dict[str, ReviewRule]:
    """Return the rules of a review that never sees nested calls, for the tools that it names.

    Raise `ValueError` for middleware of those ``listed`` in the agent that never sees them and is there to see them.
    ``seen`` are the tools that only the model calls.
    """
    rules = dict[str, ReviewRule]()
    place = next(index for index, one in enumerate(listed) if one is own)
    called = _Seen(frozenset(seen), words.is_callable)
    for index, one in enumerate(listed):
        if isinstance(one, HumanInTheLoopMiddleware):
            rules |= _checked_review(one, called, words, is_before=index < place)
            continue
        for review in () if one is own else _reviews_in(one):
            rules |= _checked_review(review, called, words, is_before=index < place)
        if isinstance(one, ToolCallLimitMiddleware):
            if not words.counts_calls:
                _refuse_limit(one, called, words)
        elif index < place:
            _check_wrapping(one, called, words)
    return rules


def _checked_review(review: Any, seen: _Seen, words: HidingWords, *, is_before: bool) -> dict[str, ReviewRule]:
    gated = seen.missing(review.interrupt_on)
    if not gated:
        return {}
    is_batched = getattr(review, "interrupt_mode", "batched") != "per_call"
    if words.adopts_reviews and type(review) is HumanInTheLoopMiddleware and (is_batched or is_before):
        return {name: _adopted(review, review.interrupt_on[name], is_batched=is_batched) for name in gated}
    if is_batched:
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated)} in its batched mode, which never sees calls made by"
            " a program: they would run without approval. Give it interrupt_mode='per_call' and list it after"
            f" {words.kind}, or use {words.kind}(approve=...) instead."
        )
    if is_before:
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated)} and is listed before {words.kind}, where it"
            " never sees calls made by a program: they would run without approval. List it after."
        )
    return {}


def _reviews_in(one: Any) -> list[Any]:
    """Return the reviews that a middleware holds, which it may pass its hooks on to."""
    held: Iterable[Any] = getattr(one, "__dict__", {}).values()
    flat = [part for value in held for part in (cast("Any", value) if isinstance(value, list | tuple) else (value,))]
    return [part for part in flat if isinstance(part, HumanInTheLoopMiddleware)]


def _adopted(review: Any, rule: Mapping[str, Any], *, is_batched: bool) -> ReviewRule:
    return ReviewRule(
        allowed_decisions=tuple(rule["allowed_decisions"]),
        description=rule.get("description"),
        description_prefix=review.description_prefix,
        when=rule.get("when"),
        is_batched=is_batched,
    )


def _refuse_limit(limit: Any, seen: _Seen, words: HidingWords) -> None:
    """It counts what the model asks for. A nested call is asked for by a program, here perhaps after its answer."""
    if limit.tool_name is not None and not seen.missing([limit.tool_name]):
        return
    counted = "all tools" if limit.tool_name is None else repr(limit.tool_name)
    raise ValueError(
        f"ToolCallLimitMiddleware limits {counted}, and never counts calls made by a program: the limit would not hold."
        f" Limit programs with ToolCallLimitMiddleware(tool_name={words.runs!r}, ...) and the calls of each with"
        f" {words.kind}(options={words.limit}); a tool named in {words.kind}({words.keep}=[...]) can be limited as"
        " ever."
    )


def _check_wrapping(one: Any, seen: _Seen, words: HidingWords) -> None:
    for name, loss in _WRAPPING.items():
        if isinstance(one, getattr(built_in, name, ())) and (missed := seen.missing(_named_in(one))):
            raise ValueError(
                f"{name} is listed before {words.kind}, where it never sees calls of {', '.join(missed)}"
                f" made by a program: {loss}. List it after."
            )


def _named_in(one: Any) -> Iterable[str]:
    judged = getattr(getattr(one, "config", None), "tools", ())  # as they were given
    names = {(name if isinstance(name, str) else name.name).strip() for name in cast("Iterable[Any]", judged)}
    return names or getattr(one, "tools_to_emulate", None) or getattr(one, "_tool_filter", None) or ()


def warn_of_sub_agents(listed: Sequence[Any], may_ask: Callable[..., bool], words: HidingWords, kind: type) -> None:
    """Log which sub-agents of a deep agent have tools that wait for a person in the agent itself, and not there.

    A middleware of this ``kind``, of those ``listed`` in the agent, has rules of its own.
    """
    for one in listed:
        for spec in cast("Sequence[Any]", getattr(one, "_subagents", None) or ()):
            if ungated := sorted(
                name for name, one in _unreviewed(spec, kind).items() if may_ask(name, _declared(one))
            ):
                _log.warning(
                    "sub-agent %r runs %s without approval: approve is the rule of one agent. Give the sub-agent"
                    " interrupt_on, or a %s(approve=...) of its own",
                    spec.get("name"),
                    ", ".join(ungated),
                    words.kind,
                )


def _unreviewed(spec: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return the tools of a sub-agent that no middleware of its own reviews; of one that is compiled nobody knows."""
    listed = spec.get("middleware") or ()
    if any(isinstance(one, kind) for one in listed):
        return {}
    reviewed = set(spec.get("interrupt_on") or ())
    for one in listed:
        reviewed |= set(one.interrupt_on) if isinstance(one, HumanInTheLoopMiddleware) else set()
    named = {name: one for one in spec.get("tools") or () if (name := name_of(one)) is not None}
    return {name: one for name, one in named.items() if name not in reviewed}


def _declared(one: Any) -> Mapping[str, Any]:
    return annotations_of(one) if isinstance(one, BaseTool) else {}


@dataclass(frozen=True)
class _Seen:
    """The tools whose calls the model makes: those named, and what no program can call."""

    named: frozenset[str]
    is_callable: Callable[[str], bool]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that only programs call."""
        return sorted(name for name in set(names) - self.named if self.is_callable(name))


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


Kept: TypeAlias = Collection[str] | Mapping[str, Any] | Callable[[BaseTool], bool]
"""Names, what a tool's metadata holds, or a function of a tool."""
InPrograms: TypeAlias = Kept | Literal["all"]
"""The same, or all tools."""


class Chosen(ToolSelection):
    """What an agent says of its tools. Raises `ValueError` for what says nothing of any."""

    def __init__(self, tools: InPrograms | None, keep: Kept, words: HidingWords) -> None:
        super().__init__(tools, keep, keep_path=words.keep)
        self._words = words
        for path, one in (("tools", self.tools), (words.keep, self.keep)):
            if one is not None and (own := sorted(filter(words.is_own, one.names))):
                raise ValueError(f"{path} names {own[0]!r}, which is shown in the place of all others")

    @property
    def kept_names(self) -> frozenset[str]:
        """The names that were said to stay with the model."""
        return self.keep.names

    @property
    def alone_names(self) -> frozenset[str]:
        """Those of them that no program can call either, whatever tools of these names turn out to be."""
        if self.tools is None:
            return self.keep.names
        return self.keep.names - self.tools.names if self.tools.is_by_name else frozenset()

    def places(self, one: BaseTool) -> Any:
        """Return where a tool is called. What no program can call stays with the model."""
        if not self._words.is_callable(one.name):
            return self.ONLY_DIRECTLY
        return self.find_places(one.name, one.metadata, one)

    def is_kept(self, name: str, tool: BaseTool | None) -> bool:
        """Tell whether the model calls the tool of this name itself: of one that nobody has, its name alone tells."""
        if tool is not None:
            return self.places(tool).directly
        return name in self.keep.names or not self._words.is_callable(name)


def names_of(tools: Iterable[Any]) -> set[str]:
    """Return the names by which people and models know these tools."""
    return {name for one in tools for name in (name_of(one), offered_name(one)) if name is not None}
