"""What a model is told of a result that is too large for it."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import ModelOutput
from codemode.execution.large_results import (
    describe_too_large_result,
    estimate_result_characters,
    is_longer_than,
    replace_if_too_large,
)
from codemode.execution.outcome import OutputItem
from codemode.options.parts import MIN_MODEL_CHARACTERS
from codemode.surfaces.code_mode.model_output import ModelOutputFormatter, OneCallOutputFormatter
from codemode.surfaces.exec_wait.results import format_output

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)
ROWS = [{"id": n, "name": f"row {n}", "tags": ["a", "b"], "owner": None, "open": True} for n in range(5000)]


class Watched(list):
    """Counts how many of its items are looked at."""

    seen = 0

    def __iter__(self):
        for one in super().__iter__():
            Watched.seen += 1
            yield one


@given(JSON)
def test_characters_are_counted_about_as_json_has_them(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    counted = estimate_result_characters(value, 1 << 40)
    containers = text.count("[") + text.count("{")
    assert len(text) <= counted <= len(text) * 1.5 + containers + 8


def test_of_what_is_too_large_no_more_is_looked_at_than_is_shown():
    value = Watched(range(1_000_000))
    Watched.seen = 0
    assert is_longer_than(value, 20_000)
    text = describe_too_large_result(value, 20_000, 6_888_890)
    assert Watched.seen < 20_000
    assert len(text) <= 20_000
    assert "an array of 1,000,000 items, 6,888,890 bytes of JSON" in text


@pytest.mark.parametrize(("json_bytes", "most", "expected"), [(10, 10, False), (10_000, 2_000, True), (41, 10, True)])
def test_known_bytes_often_decide_alone(json_bytes, most, expected):
    assert is_longer_than([None] * 3000, most, json_bytes) is expected


def test_size_shape_and_beginning():
    text = describe_too_large_result(ROWS, 20_000, 400_000, "result:3")
    size, shape, begins, beginning, end = text.split("\n")
    assert "an array of 5,000 items, 400,000 bytes of JSON" in size
    assert shape == "Its shape: { id: number, name: string, tags: string[], owner: null, open: boolean }[]"
    assert begins == "Its beginning, shortened:"
    shown = json.loads(beginning)
    assert shown[:2] == ROWS[:2]
    assert shown[-1].startswith("... 4,9")
    assert end.startswith('The whole is saved: the next program reads it with `await state.get("result:3")`.')


def test_without_a_place_it_says_that_the_rest_is_gone():
    text = describe_too_large_result("x" * 50_000, 20_000)
    assert "50,000 characters of text" in text
    assert text.endswith("The rest was dropped. Return less: filter, slice, count or aggregate in the program.")


@given(JSON, st.integers(MIN_MODEL_CHARACTERS, 5000), st.sampled_from([None, "result:12"]))
def test_any_value_is_told_of_within_the_limit_and_its_beginning_is_json(value, most, key):
    text = describe_too_large_result(value, most, 10**12, key)
    assert len(text) <= most
    if not isinstance(value, str):
        beginning = text.split("shortened:\n", 1)[1].rsplit("\nThe ", 1)[0]
        assert beginning in ("[...]", "{...}") or json.loads(beginning) is not NotImplemented


@pytest.mark.parametrize(
    "value",
    [
        [[[[[[[[[[[[1] * 50] * 50] * 50] * 50]]]]]]]],
        {"k" * 100_000: {"k" * 100_000: 1}},
        [10**1000] * 1000,
        {f"{n}" * 200: "v" * 3000 for n in range(500)},
    ],
    ids=["deep", "keys", "integers", "wide"],
)
def test_hostile_values_are_told_of_within_the_limit(value):
    assert is_longer_than(value, MIN_MODEL_CHARACTERS)
    assert len(describe_too_large_result(value, MIN_MODEL_CHARACTERS, 10**9, "result:1")) <= MIN_MODEL_CHARACTERS


def test_what_fits_stays_as_it_is():
    assert replace_if_too_large(ROWS, None) is ROWS
    assert replace_if_too_large(ROWS[:3], 20_000) == ROWS[:3]
    assert replace_if_too_large("x" * 20_000, 20_000) == "x" * 20_000


@pytest.mark.parametrize("kind", [ModelOutputFormatter, OneCallOutputFormatter])
def test_a_result_is_told_of_with_what_is_known_of_its_run(kind):
    outputs = kind(ModelOutput(max_model_characters=2000), lambda _name: None)
    outputs.remember_run("c1", ROWS, None, "kept as result:1", 400_000)
    assert outputs.format(ROWS, "c1") == {"type": "text", "value": "kept as result:1"}
    other = outputs.format(list(ROWS), "c1")
    assert other["type"] == "text"
    assert "The rest was dropped" in other["value"]


def test_one_call_keeps_what_is_said_of_any_size():
    outputs = OneCallOutputFormatter(ModelOutput(max_model_characters=2000), lambda _name: None)
    outputs.remember_run("c1", ROWS, None, "kept as result:1", 1 << 40)
    assert outputs.format(ROWS, "c1")["value"] == "kept as result:1"


def test_a_summary_leaves_the_result_out_too():
    options = ModelOutput(max_model_characters=2000, include_nested_tool_summary=True)
    outputs = ModelOutputFormatter(options, lambda _name: None)
    outputs.remember_run("c1", ROWS, None, "told", 400_000)
    assert outputs.format(ROWS, "c1")["value"] == {"result": "told", "nestedTools": []}


def test_fewer_characters_than_a_model_could_understand_are_refused():
    with pytest.raises(ValueError, match=r"model_output\.max_model_characters must be at least 1000"):
        ModelOutput(max_model_characters=999)


def test_what_programs_write_is_told_of_where_it_is_too_much():
    items = [OutputItem("text", "x" * 900), OutputItem("json", ROWS), *[OutputItem("text", "y")] * 3]
    assert format_output(items)[1]["value"] is ROWS
    first, second, rest = format_output(items, 3000)
    assert first == {"type": "text", "text": "x" * 900}
    assert "an array of 5,000 items" in second["text"]
    assert rest["text"] == "3 more items were left out: write less."
    assert format_output([OutputItem("text", "x" * 2500), OutputItem("json", ROWS)], 3000)[1]["text"].startswith(
        "1 more"
    )


@each_row("leaf", [[], {}, [[]], ""])
@each_row("kind", [list, dict])
def test_what_is_told_takes_no_longer_for_many_members_than_for_few(leaf, kind):
    def nested(depth):
        members = [nested(depth - 1) if depth > 1 else leaf for _ in range(20)]
        return members if kind is list else {f"key{at}": one for at, one in enumerate(members)}

    value, seen = nested(3), []
    for _ in range(3):  # as large as one likes, without the memory of it
        value = [value] * 20 if kind is list else {f"key{at}": value for at in range(20)}

    def count(*_):
        seen.append(1)
        if len(seen) > 200_000:
            raise AssertionError("it goes through the whole value")

    sys.setprofile(count)
    try:
        text = describe_too_large_result(value, 5000)
    finally:
        sys.setprofile(None)
    assert len(text) <= 5000
