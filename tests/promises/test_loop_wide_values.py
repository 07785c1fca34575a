"""No container that is too wide is gone through, and what goes through much does not bring the collector."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_loop import in_loop
from pydantic import BaseModel

from codemode import ExecutionPolicy, Tool
from codemode.errors import CodeModeSerializationError
from codemode.execution.call_values import validate_output_and_encode
from codemode.interrupts.interrupt import is_same_json
from codemode.schemas.compiled import copy_json
from codemode.schemas.type_pieces import are_equal
from codemode.tools.prepared import prepare_tool
from codemode.tools.running import UnreadIteratorError, require_no_iterators


class Kept(BaseModel):
    rows: Any


@dataclass
class Held:
    rows: Any


class Untouched(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it was gone through")


@pytest.mark.parametrize("schema", [None, list[Any], {"type": "array"}])
@pytest.mark.parametrize(
    "around", [lambda one: one, lambda one: {"a": one}, lambda one: Kept.model_construct(rows=one)]
)
@in_loop
async def test_loop_an_output_that_is_too_wide_is_not_gone_through(around, schema, monkeypatch):
    tool = prepare_tool(Tool("give", execute=None, output_schema=schema))
    value = around(Untouched([[]] * 5000))
    monkeypatch.setattr("codemode.data.json_values.has_cycle", lambda _: False)
    with pytest.raises(CodeModeSerializationError, match="more than 4000 values"):
        await validate_output_and_encode(tool, value, ExecutionPolicy(max_values=4000))


NESTED = st.recursive(
    st.integers() | st.text(max_size=2) | st.just(iter),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.lists(inside, max_size=3).map(tuple)
        | st.lists(inside, max_size=3).map(deque)
        | st.dictionaries(st.text(max_size=2), inside, max_size=3)
        | inside.map(lambda one: Kept.model_construct(rows=one))
        | inside.map(Held)
    ),
    max_leaves=20,
)


def with_iterators(value: Any) -> tuple[Any, bool]:
    """Return the value with an iterator for each mark, and whether there was one."""
    if value is iter:
        return iter([1]), True
    if isinstance(value, Kept | Held):
        inside, found = with_iterators(value.rows)
        return (Kept.model_construct(rows=inside) if isinstance(value, Kept) else Held(inside)), found
    if isinstance(value, dict):
        made = {key: with_iterators(one) for key, one in value.items()}
        return {key: one for key, (one, _) in made.items()}, any(found for _, found in made.values())
    if isinstance(value, list | tuple | deque):
        each = [with_iterators(one) for one in value]
        return type(value)(one for one, _ in each), any(found for _, found in each)
    return value, False


@given(NESTED)
def test_loop_an_iterator_is_found_wherever_it_is(marked):
    value, found = with_iterators(marked)
    try:
        require_no_iterators(value, is_declared=True)
        refused = False
    except UnreadIteratorError:
        refused = True
    assert refused == found


def test_loop_a_look_for_iterators_ends_in_a_circle():
    circle: list[Any] = [[]]
    circle[0].append(circle)
    circle.append({"a": circle})
    require_no_iterators(circle, is_declared=True)


# --- the collector ---


class Node(BaseModel):
    rows: list[Any] = []


PLAIN = [{"a": [number]} for number in range(10_000)]
COPIES: dict[str, Callable[[], Any]] = {
    "copying": lambda: copy_json(PLAIN),
    "comparing plain JSON": lambda: is_same_json(PLAIN, OTHER),
    "comparing lists": lambda: are_equal(PLAIN, OTHER),
    "comparing dicts": lambda: are_equal(dict(enumerate(PLAIN)), dict(enumerate(OTHER))),
    "comparing models": lambda: are_equal(MODELS, OTHER_MODELS),
}
OTHER = copy_json(PLAIN)
MODELS, OTHER_MODELS = ([Node(rows=[number]) for number in range(7_000)] for _ in range(2))


@pytest.mark.parametrize("work", COPIES.values(), ids=COPIES)
def test_loop_what_goes_through_much_does_not_bring_the_collector(work):
    """It looks at all there is, with the interpreter to itself, once for each seven hundred objects that stay."""
    came: list[str] = []

    def note(phase: str, _info: Any) -> None:
        came.append(phase)

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(700, 10, 10)
    try:
        assert work()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert came.count("start") <= 10
