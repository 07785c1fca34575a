"""Shapes of what tools gave: wide enough for all that was seen, never narrower than before, and without any value."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import threading
from functools import reduce
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.tool_history import inferred_schema, output_schema_inference
from codemode_gateway.tool_history.inferred_schema import (
    drop_rare_names,
    infer_shape,
    join_shapes,
    limit_shape_size,
    looks_like_property_name,
    shape_from_json,
    shape_to_json,
    shape_to_schema_without_rare_names,
)
from codemode_gateway.tool_history.output_schema_inference import InferredOutputSchemas
from hypothesis import given
from hypothesis import strategies as st
from in_loop import in_loop
from jsonschema import Draft202012Validator
from suite import each_row, rounds
from waiting import until

KEYS = st.sampled_from(["id", "title", "state", "owner"]) | st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
MANY = st.lists(VALUES, min_size=1, max_size=6)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    return Draft202012Validator(schema).is_valid(value)


@given(MANY, MANY)
def test_a_shape_fits_all_that_was_seen_and_joining_more_only_widens_it(values: list[Any], more: list[Any]) -> None:
    before = reduce(join_shapes, map(infer_shape, values))
    after = limit_shape_size(reduce(join_shapes, map(infer_shape, more), before))
    for value in values:
        assert fits(value, shape_to_schema_without_rare_names(before))
        assert fits(value, shape_to_schema_without_rare_names(after))
    for value in more:
        assert fits(value, shape_to_schema_without_rare_names(after))


@given(MANY, MANY)
def test_what_is_written_down_is_read_as_it_was_and_goes_on_to_fit(values: list[Any], more: list[Any]) -> None:
    kept = drop_rare_names(limit_shape_size(reduce(join_shapes, map(infer_shape, values))), drops_unnamed_objects=True)
    again = shape_from_json(json.loads(json.dumps(shape_to_json(kept))))
    assert shape_to_json(again) == shape_to_json(kept)
    after = shape_to_schema_without_rare_names(reduce(join_shapes, map(infer_shape, more), again))
    assert all(fits(value, after) for value in more)


MARK = "zq"  # in no word of a schema
MARKED = st.recursive(
    st.just(f"{MARK} text"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3).map(MARK.__add__), inner),
    max_leaves=8,
)


@given(MARKED)
def test_nothing_of_one_value_is_told_or_written_be_it_text_or_key(value: Any) -> None:
    # In a list two objects may have the same keys, which makes names of them.
    shape = infer_shape(value)
    said = json.dumps(
        [shape_to_schema_without_rare_names(shape), shape_to_json(drop_rare_names(shape, drops_unnamed_objects=True))]
    )
    keys = set(re.findall(rf"{MARK}[ab]*", said))
    assert f"{MARK} text" not in said
    assert all(json.dumps(value).count(f'"{key}":') >= 2 for key in keys)


@each_row(
    "key",
    [
        *("ada@example.com", "Ada Lovelace", "2026-01-01", "12", "x" * 41, "user_12345", "https://x/y", "", "é", "a.b"),
        *("3f2b8c1e-0000-4000-8000-000000000000", "deadbeef", "key\n", "T024BE7LD123"),
    ],
)
def test_a_key_that_is_odd_is_never_kept_however_often_it_is_seen(key: str) -> None:
    assert not looks_like_property_name(key)
    shape = reduce(join_shapes, (infer_shape({key: {"id": number}, "id": 1}) for number in range(9)))
    said = json.dumps(
        [shape_to_schema_without_rare_names(shape), shape_to_json(drop_rare_names(shape))], ensure_ascii=False
    )
    assert not key or json.dumps(key, ensure_ascii=False)[1:-1] not in said
    assert shape_to_schema_without_rare_names(shape)["additionalProperties"]


def test_names_that_are_seen_again_are_properties_and_names_that_vary_are_those_of_a_record() -> None:
    issues = [{"number": n, "title": "x", **({"closed": True} if n % 2 else {})} for n in range(4)]
    assert shape_to_schema_without_rare_names(infer_shape({"items": issues}))["additionalProperties"] == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"number": {"type": "number"}, "title": {"type": "string"}, "closed": {"type": "boolean"}},
            "required": ["number", "title"],
        },
    }
    for people in (["ada", "bob", "eve"], ["ada bob", "ada eve"], ["ada bob", "ada bob", "ada bob eve"]):
        seen = [{name: {"age": number} for name in names.split()} for number, names in enumerate(people)]
        record = shape_to_schema_without_rare_names(reduce(join_shapes, map(infer_shape, seen)))
        assert record["type"] == "object"
        assert "properties" not in record
        assert record["additionalProperties"]["properties"] == {"age": {"type": "number"}}


def test_many_names_and_deep_values_are_bounded() -> None:
    wide = {f"n{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}": n for n in range(inferred_schema.MAX_NAMES + 1)}
    assert shape_to_schema_without_rare_names(join_shapes(infer_shape(wide), infer_shape(wide))) == {
        "type": "object",
        "additionalProperties": {"type": "number"},
    }
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert len(json.dumps(shape_to_schema_without_rare_names(infer_shape(deep)))) < 400
    endless = infer_shape([[{"x": n, "y": [n]} for n in range(rounds(200, 1000))] for _ in range(rounds(200, 1000))])
    assert len(json.dumps(shape_to_schema_without_rare_names(endless))) < 1000
    tree: Any = 1
    for level in range(rounds(6, 7)):
        tree = {f"k{'abcdefgh'[level]}{side}": tree for side in "lrmno"}
    twice = limit_shape_size(join_shapes(infer_shape(tree), infer_shape(tree)))
    assert len(json.dumps(shape_to_schema_without_rare_names(twice))) < output_schema_inference.MAX_SHAPE_CHARACTERS


def test_no_more_of_a_value_is_looked_at_than_that_however_it_branches() -> None:
    looked: list[str] = []

    class Watched(dict[str, Any]):
        def values(self) -> Any:
            looked.append("object")
            return super().values()

        def items(self) -> Any:
            looked.append("object")
            return super().items()

    tree: Any = 1
    for level in range(inferred_schema.MAX_DEPTH - 1):
        tree = Watched({f"k{'abcdefgh'[level]}{side}": tree for side in "lrmno"})
    infer_shape(tree)
    assert 0 < len(looked) <= inferred_schema.MAX_INSPECTED_PARTS


def test_what_is_not_looked_at_widens_nothing() -> None:
    one = {"name": "x", "owner": {"login": "y", "teams": [{"id": 1}]}}
    few, many = infer_shape([one] * 2), infer_shape([one] * inferred_schema.MAX_INSPECTED_PARTS)
    assert shape_to_schema_without_rare_names(many) == shape_to_schema_without_rare_names(few)


@each_row(
    "said",
    [
        *(1, "x", [], {"types": ["secret"]}, {"objects": 9}, {"names": 1}, {"items": 3}, {"types": 4}),
        *({"objects": 2, "names": {"a b": [{}, False]}}, {"objects": 2, "names": {"a": {}}}),
    ],
)
def test_what_is_no_shape_is_not_read(said: Any) -> None:
    with pytest.raises(ValueError, match="shape"):
        shape_from_json(said)


# --- learning ---

SERVER = ServerConfig("s", "stdio")


def tool(name: str = "t") -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_schema_inference, "ANNOUNCE_SECONDS", 0.0)
    monkeypatch.setattr(output_schema_inference, "SAVE_SECONDS", 3600.0)


@in_loop
async def test_what_tools_gave_is_kept_for_the_next_gateway_of_the_same_principal(tmp_path: Path) -> None:
    learned = InferredOutputSchemas(tmp_path / "cache")
    assert learned.observe_tool_and_get_schema(SERVER, tool()) is None
    for number in (1, 2):
        learned.on_result(SERVER, "t", {"id": number, "tags": ["secret tag"]})
        learned.on_result(SERVER, "declared", {"id": number})
    assert learned.get_learned_revision(SERVER) == 1
    said = learned.observe_tool_and_get_schema(SERVER, tool())
    assert said is not None
    assert said["isText"] is False
    assert said["schema"]["required"] == ["id", "tags"]
    await learned.aclose()
    file = tmp_path / "cache" / output_schema_inference.FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"secret" not in file.read_bytes()
    assert b"declared" not in file.read_bytes()
    again, other = InferredOutputSchemas(tmp_path / "cache"), InferredOutputSchemas(tmp_path / "cache", "another")
    await again.load()
    await other.load()
    assert again.observe_tool_and_get_schema(SERVER, tool()) == said
    assert other.observe_tool_and_get_schema(SERVER, tool()) is None


@in_loop
async def test_the_same_answer_again_makes_no_name_of_a_key(tmp_path: Path) -> None:
    learned = InferredOutputSchemas(tmp_path)
    learned.observe_tool_and_get_schema(SERVER, tool())
    for _ in range(5):
        learned.on_result(SERVER, "t", {"alice": 1, "bob": 2})
    said = learned.observe_tool_and_get_schema(SERVER, tool())
    assert said is not None
    assert said["schema"] == {"type": "object", "additionalProperties": {"type": "number"}}
    await learned.aclose()
    assert b"alice" not in (tmp_path / output_schema_inference.FILE_NAME).read_bytes()


@in_loop
async def test_json_in_texts_is_told_until_a_text_is_something_else() -> None:
    learned = InferredOutputSchemas(None)
    learned.observe_tool_and_get_schema(SERVER, tool())
    for number in (1, 2):
        learned.on_result(SERVER, "t", json.dumps([{"id": number}, {"id": 0}]))
    said = learned.observe_tool_and_get_schema(SERVER, tool())
    assert said is not None
    assert said["isText"] is True
    assert said["schema"]["items"]["properties"] == {"id": {"type": "number"}}
    for text in ("no JSON", "[" * 100_000, '{"x": NaN', "7"):
        learned.on_result(SERVER, "t", text)
        assert learned.observe_tool_and_get_schema(SERVER, tool()) == {"schema": {"type": "string"}, "isText": False}
    await learned.aclose()


@in_loop
async def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / output_schema_inference.FILE_NAME
    file.write_bytes(b"rubbish" * 1000)
    file.chmod(0o600)
    learned = InferredOutputSchemas(tmp_path)
    await learned.load()
    learned.observe_tool_and_get_schema(SERVER, tool())
    learned.on_result(SERVER, "t", 1)
    assert learned.observe_tool_and_get_schema(SERVER, tool()) == {"schema": {"type": "number"}, "isText": False}
    await learned.aclose()
    assert "cannot be read" in caplog.text
    assert "cannot be saved" in caplog.text
    assert file.read_bytes().startswith(b"rubbish")


@in_loop
async def test_looking_gets_rarer_and_what_is_learned_is_saved_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_schema_inference, "SAVE_SECONDS", 0.0)
    looked: list[Any] = []
    look = output_schema_inference.infer_shape
    monkeypatch.setattr(output_schema_inference, "infer_shape", lambda value: looked.append(value) or look(value))
    learned = InferredOutputSchemas(tmp_path)
    learned.observe_tool_and_get_schema(SERVER, tool())
    for number in range(160):
        learned.on_result(SERVER, "t", number)
    assert len(looked) == 40
    assert learned._save_task is not None
    async with asyncio.timeout(60):
        await learned._save_task
    assert (tmp_path / output_schema_inference.FILE_NAME).exists()
    await learned.aclose()


@in_loop
async def test_who_closes_it_waits_for_what_is_just_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_schema_inference, "SAVE_SECONDS", 0.0)
    learned, began, goes_on = InferredOutputSchemas(tmp_path), threading.Event(), threading.Event()
    write = learned._write_shape_rows_and_record_use

    def slow(rows: list[tuple[str, ...]]) -> None:
        began.set()
        assert goes_on.wait(60)
        write(rows)

    monkeypatch.setattr(learned, "_write_shape_rows_and_record_use", slow)
    learned.observe_tool_and_get_schema(SERVER, tool())
    learned.on_result(SERVER, "t", 1)
    await until(began.is_set)
    closing = asyncio.create_task(learned.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    try:
        assert not closing.done()
    finally:
        goes_on.set()
    await closing
    again = InferredOutputSchemas(tmp_path)
    await again.load()
    assert again.observe_tool_and_get_schema(SERVER, tool()) == {"schema": {"type": "number"}, "isText": False}
