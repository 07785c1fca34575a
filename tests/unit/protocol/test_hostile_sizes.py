"""What a hostile worker sends and a hostile program asks may cost the host little, whatever its shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeProtocolError
from codemode.data.json_shape import find_exceeded_limit
from codemode.data.similar_names import find_nearest_names
from codemode.protocol.message_decoder import decode_message
from codemode.protocol.messages import ConsoleWritten, ProgramAnalysed, ProgramReturned
from codemode.source.checks import MAX_KEYS, find_program_problems

LINE = '{"level":"log","text":""'


@each_row(
    "kind, payload",
    [
        (b"L", LINE + ',"x":[]}'),
        (b"L", LINE + "," + " " * 500_000 + "}"),
        (b"T", '{"in_flight":0,"x":{}}'),
        (b"C", '{"id":1,"kind":"tool","name":"a","input":"1","x":[' + "{}," * 100 + "{}]}"),
        (b"X", '{"name":"","message":"","code":"","stack":"","x":[[]]}'),
        (b"F", '{"message":"","x":[]}'),
        (b"V", '{"value":"1","unobserved":[[]]}'),
        (b"a", '{"js":"","facts":{"calls":[' + "{}," * 40_000 + "{}]}}"),
    ],
)
def test_a_message_has_no_more_structure_than_it_needs(kind, payload):
    with pytest.raises(CodeModeProtocolError, match="the worker sent"):
        decode_message(kind + payload.encode())


def test_text_inside_a_message_may_hold_any_structure():
    text = json.dumps([[{}]] * 50_000)
    returned = decode_message(b"V" + json.dumps({"value": text, "unobserved": [1]}).encode())
    assert returned == ProgramReturned(text, is_undefined=False, value_bytes=None, unobserved_ids=(1,))
    assert decode_message(b"L" + (LINE + "}").encode()) == ConsoleWritten("log", "")
    facts = {"calls": [{"name": "a", "input": {"keys": {"b": {"type": "null"}}}}] * 512, "modules": []}
    said = json.dumps({"js": "{" * 50_000, "facts": facts}).encode()
    assert decode_message(b"a" + said) == ProgramAnalysed("{" * 50_000, facts, (), size=len(said))


VALUES = st.recursive(st.text('[]{}"\\ab'), lambda inner: st.lists(inner) | st.dictionaries(st.text('[{"\\'), inner))


def containers(value):
    if not isinstance(value, list | dict):
        return 0
    return 1 + sum(map(containers, value.values() if isinstance(value, dict) else value))


@given(VALUES, st.integers(0, 12))
def test_containers_are_counted_outside_texts(value, maximum):
    found = find_exceeded_limit(json.dumps(value), max_containers=maximum)
    assert (found == "containers") == (containers(value) > maximum)


@pytest.mark.parametrize(("count", "found"), [(MAX_KEYS, 1), (MAX_KEYS + 1, 0)])
def test_a_literal_with_more_keys_than_are_ever_listed_is_no_fact(count, found):
    keys = {f"a{'_' * number}": {} for number in range(1, count)} | {"unknown": {}}
    call = {"name": "pay", "line": 1, "column": 1, "input": {"type": "object", "open": True, "keys": keys}}
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    assert len(find_program_problems({"calls": [call]}, ["pay"], lambda _: schema)) == found


def test_few_names_are_really_compared(monkeypatch):
    compared = []

    def compare(name, known, **settings):
        compared.extend(known)
        return []

    monkeypatch.setattr("difflib.get_close_matches", compare)
    find_nearest_names("list_items", [f"list_item_{number}" for number in range(5000)])
    assert 0 < len(compared) < 50


@pytest.mark.parametrize("name", ["read_flie", "raedfile", "readfile", "read_fil"])
def test_the_one_that_was_meant_is_among_them(name):
    known = [f"{verb}_{noun}" for verb in ("list", "make", "drop", "move") for noun in "abcdefghij"]
    assert find_nearest_names(name, [*known, "read_file"])[0] == "read_file"
