"""A request, read by hand: whatever comes in, there is an answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.options.parts import MIB
from codemode.surfaces.modules.executor import RunRequest, parse_request
from codemode.surfaces.modules.options import WIRE_NAMES, RunOptions

OPTIONS = RunOptions(ceilings={"timeout_ms": 60_000})
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def read(**given: Any) -> RunRequest:
    request = parse_request({"code": "", **given}, OPTIONS)
    assert isinstance(request, RunRequest)
    return request


@each_row(
    "given, paths",
    [
        (None, [""]),
        ("code", [""]),
        ([], [""]),
        ({}, ["/code"]),
        ({"colour": "1"}, ["/code"]),
        ({"code": None}, ["/code"]),
        ({"code": 5}, ["/code"]),
        ({"code": ["a"]}, ["/code"]),
        ({"code": "", "limits": "fast"}, ["/limits"]),
        ({"code": "", "limits": [1]}, ["/limits"]),
        ({"code": "", "requestedCapabilities": "github"}, ["/requestedCapabilities"]),
        ({"code": "", "requestedCapabilities": {}}, ["/requestedCapabilities"]),
        ({"code": "", "requestedCapabilities": ["a", 1]}, ["/requestedCapabilities/1"]),
        ({"code": "", "requestedCapabilities": ["a"] * 1_001}, ["/requestedCapabilities"]),
        ({"limits": 1, "requestedCapabilities": 2}, ["/code", "/limits", "/requestedCapabilities"]),
    ],
)
def test_fields_of_a_wrong_type_are_told_all_at_once(given: Any, paths: list[str]):
    said = parse_request(given, OPTIONS)
    assert isinstance(said, list)
    assert [(one["code"], one["severity"], one.get("path")) for one in said] == [
        ("BAD_REQUEST", "error", path) for path in paths
    ]
    assert all(one.get("hint") for one in said)


def test_a_request_of_code_alone_has_the_defaults():
    assert read() == RunRequest("", None, (), ())
    assert read(limits=None, requestedCapabilities=None) == RunRequest("", None, (), ())
    assert read(limits={}, requestedCapabilities=[], other=[1]) == RunRequest("", None, (), ())


def test_unknown_limits_are_ignored_without_a_word():
    assert read(limits={"maxSteps": 3, "timeout_ms": 1, "": None}) == RunRequest("", None, (), ())


def test_limits_within_the_ceiling_hold():
    request = read(limits={"timeoutMs": 60_000, "maxToolCalls": 3, "maxMemoryBytes": 2 * MIB, "maxLogBytes": 10.0})
    assert request.notes == ()
    limits = request.limits
    assert limits is not None
    assert (limits.timeout_ms, limits.max_tool_calls, limits.max_memory_bytes) == (60_000, 3, 2 * MIB)
    assert (limits.max_log_bytes, limits.max_result_bytes) == (10, 100_000)


@each_row("name", WIRE_NAMES.values())
@each_row("value", ["5", True, 1.5, None, [], {}, float("nan"), float("inf")])
def test_a_limit_of_a_wrong_type_is_the_default_and_said(name: str, value: Any):
    request = read(limits={name: value})
    assert request.limits is None
    [note] = request.notes
    assert (note["code"], note["severity"], note.get("path")) == ("LIMIT_ADJUSTED", "warning", f"/limits/{name}")
    assert name in note["message"]


@each_row(
    "name, value, holds",
    [
        ("timeoutMs", 60_001, 60_000),
        ("timeoutMs", 10**30, 60_000),
        ("timeoutMs", 0, 1),
        ("maxToolCalls", -5, 1),
        ("maxMemoryBytes", 5, MIB),
    ],
)
def test_a_limit_beyond_what_is_allowed_is_adjusted_and_said(name: str, value: int, holds: int):
    request = read(limits={name: value})
    option = next(option for option, wire in WIRE_NAMES.items() if wire == name)
    assert getattr(request.limits, option) == holds
    [note] = request.notes
    assert note["code"] == "LIMIT_ADJUSTED"
    assert str(holds) in note["message"]


def test_capabilities_are_named_once():
    assert read(requestedCapabilities=["b", "a", "b"]).capabilities == ("b", "a")


@given(
    ANYTHING
    | st.fixed_dictionaries({"code": st.text(max_size=3), "limits": ANYTHING, "requestedCapabilities": ANYTHING})
)
def test_nothing_that_comes_in_raises(value: Any):
    said = parse_request(value, OPTIONS)
    assert isinstance(said, RunRequest) or all(one["code"] == "BAD_REQUEST" for one in said)
