"""Programs for property tests, and what they must return, worked out without running them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hypothesis import strategies as st
from simulated_kernel import All, AllSettled, Call, Detach, Forget, Never, Program, Race, Retry, Sequence_, Throw

_CALLS = st.builds(Call, st.just("t"), st.integers(0, 3))


def _parts(children: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(children, min_size=1, max_size=4).map(tuple)


def _combined(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Sequence_, _parts(children)),
        st.builds(All, _parts(children)),
        st.builds(AllSettled, _parts(children)),
        st.builds(Race, _parts(_CALLS)),
        st.builds(Retry, children, children),
    )


def numbered(program: Program) -> Program:
    """Give every call a name of its own."""
    names = (f"t{number}" for number in count(1))

    def walk(node: Any) -> Any:
        match node:
            case Call():
                return replace(node, name=next(names))
            case Sequence_(parts) | All(parts) | AllSettled(parts) | Race(parts):
                return replace(node, parts=tuple(walk(part) for part in parts))
            case Retry(body, fallback):
                return Retry(walk(body), walk(fallback))
            case Forget(call):
                return Forget(walk(call))
            case Detach(body):
                return Detach(walk(body))
            case _:
                return node

    return walk(program)


_AWAITED = st.recursive(_CALLS, _combined, max_leaves=12)
_ANYTHING = st.recursive(
    st.one_of(_CALLS, st.builds(Forget, _CALLS), st.builds(Throw, st.just("oops")), st.just(Never())),
    lambda children: st.one_of(_combined(children), st.builds(Detach, children)),
    max_leaves=12,
)

awaited_programs = _AWAITED.map(numbered)
"""Programs that await everything they start, except what lost a race or came after a failure."""

any_programs = _ANYTHING.map(numbered)
"""Also programs that forget calls, throw, or wait for nothing."""


@dataclass(frozen=True, slots=True)
class Value:
    """How a part of a program ended, and after how many deliveries."""

    at: int
    value: Any
    failed: bool = False


def expected_value(
    program: Program, delivered_at: Mapping[str, int], outcomes: Mapping[str, Value], start: int = 0
) -> Value | None:
    """Work out a program's end from when each call's outcome was delivered. None: it never ends."""

    def walk(node: Any, at: int) -> Value | None:
        match node:
            case Call(name):
                known = outcomes.get(name)
                return None if known is None else replace(known, at=max(at, delivered_at.get(name, at)))
            case Sequence_(parts):
                return _sequence(parts, at)
            case All(parts):
                return _all([walk(part, at) for part in parts])
            case AllSettled(parts):
                ends = [walk(part, at) for part in parts]
                return _all([end and (Value(end.at, "failed") if end.failed else end) for end in ends])
            case Race(parts):
                ended = [end for part in parts if (end := walk(part, at)) is not None]
                return min(ended, key=lambda end: end.at, default=None)
            case Retry(body, fallback):
                end = walk(body, at)
                return walk(fallback, end.at) if end is not None and end.failed else end
            case _:
                raise AssertionError(node)

    def _sequence(parts: tuple[Any, ...], at: int) -> Value | None:
        values: list[Any] = []
        for part in parts:
            end = walk(part, at)
            if end is None or end.failed:
                return end
            at = end.at
            values.append(end.value)
        return Value(at, values)

    return walk(program, start)


def _all(ends: list[Value | None]) -> Value | None:
    failures = [end for end in ends if end is not None and end.failed]
    if failures:
        return min(failures, key=lambda end: end.at)
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    return Value(max(end.at for end in known), [end.value for end in known])
