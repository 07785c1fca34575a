"""Other middleware that would not see what it is there to see: refused before a model is asked. Runs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents import middleware as built_in
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain_core.tools import BaseTool

from codemode.plugins import can_be_called

from .approvals import ReviewRule
from .server_tools import annotations_of
from .shown_tools import name_of

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
    is_callable: Callable[[str], bool] = can_be_called
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
