"""Programs and tools with integers beyond 2^53: what the tests of exact integers share."""

from __future__ import annotations

from typing import Any

from calls import with_call
from hypothesis import strategies as st

from codemode import (
    Tool,
    run_code_mode_sync,
)

ORDER = 1180591620717411303


LONGEST = 10**1000 - 1


def run(js: str, tools: Any = (), **settings: Any) -> Any:
    return run_code_mode_sync(js, tools, **with_call(settings))


def giving(value: Any) -> Tool:
    return Tool("give", execute=lambda _: value)


ECHO = Tool("echo", execute=lambda value: value)


long_integers = st.integers(min_value=0, max_value=999).flatmap(
    lambda digits: st.integers(min_value=-(10**digits), max_value=10**digits)
)


numbers = st.one_of(
    st.integers(min_value=-(2**128), max_value=2**128),
    st.integers(min_value=2**53 - 3, max_value=2**53 + 3),
    st.integers(min_value=-(2**64), max_value=2**64),
    long_integers,
    st.floats(allow_nan=False, allow_infinity=False),
)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, numbers.map(str)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=30,
)
