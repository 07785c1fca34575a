"""Records are frozen values, as frozen dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar

import pytest

from codemode.options.parts import CodeModeOptions, ExecutionPolicy
from codemode.records import record
from codemode.trace.events import FetchResultEvent, NestedToolResultEvent
from codemode.trace.trace import Trace


@record
class Point:
    """A point."""

    x: int
    y: int = 0

    @property
    def total(self) -> int:
        return self.x + self.y


@record
class Other:
    x: int
    y: int


@record
class Nothing:
    """Has no fields."""


def test_fields_are_given_by_position_or_name_and_have_defaults():
    assert (Point(1).x, Point(1).y, Point(y=3, x=2).total) == (1, 0, 5)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_records_of_one_class_are_compared_and_hashed_by_value():
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert len({Point(1, 2), Point(1, 2), Point(2, 1), Nothing(), Nothing()}) == 3


def test_nothing_can_be_changed_or_added():
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError, match=name):
            setattr(point, name, 2)
    with pytest.raises(AttributeError, match="x"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_the_class_keeps_its_name_and_its_docstring():
    assert (Point.__name__, Point.__qualname__, Point.__module__, Point.__doc__) == (
        "Point", "Point", __name__, "A point.",
    )  # fmt: skip
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"
    assert repr(Nothing()) == "Nothing()"


def test_records_can_be_matched_copied_and_pickled():
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("no match")
    assert copy.deepcopy(Point(1, 2)) == pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


@record(kw_only=True)
class Base:
    kind: ClassVar[str] = "base"
    first: int
    second: str = "s"


@record(kw_only=True)
class Derived(Base):
    kind: ClassVar[str] = "derived"
    third: Any

    def __post_init__(self) -> None:
        if self.third is None:
            raise ValueError("third is missing")


def test_a_record_has_the_fields_of_its_base_first():
    made = Derived(third=3, first=1)
    assert (repr(made), made.kind) == ("Derived(first=1, second='s', third=3)", "derived")
    assert made != Base(first=1)
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert str(inspect.signature(Derived)) == "(*, first, second='s', third)"
    with pytest.raises(TypeError, match="positional"):
        Derived(1, third=3)  # type: ignore[misc]
    with pytest.raises(ValueError, match="third is missing"):
        Derived(first=1, third=None)


def test_dataclasses_functions_take_records():
    made = Derived(first=1, third=(Point(1),))
    assert dataclasses.is_dataclass(Derived)
    assert [(one.name, one.type, one.default) for one in dataclasses.fields(made)] == [
        ("first", "int", dataclasses.MISSING), ("second", "str", "s"), ("third", "Any", dataclasses.MISSING),
    ]  # fmt: skip
    assert dataclasses.asdict(made) == {"first": 1, "second": "s", "third": ({"x": 1, "y": 0},)}
    assert dataclasses.replace(made, first=2) == Derived(first=2, third=(Point(1),))
    with pytest.raises(ValueError, match="third is missing"):
        dataclasses.replace(made, third=None)


def test_public_values_can_be_replaced_pickled_and_not_changed():
    policy = ExecutionPolicy(timeout_ms=5)
    called = FetchResultEvent(
        invocation_id="i", outer_tool_call_id="o", bridge_index=1, url="u", method="GET", input_bytes=0,
        replayed=False, started_at_ms=1.0, status="fulfilled", completed_at_ms=2.0, duration_ms=1.0,
    )  # fmt: skip
    for value in (policy, called, CodeModeOptions(execution_policy=policy)):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == dataclasses.replace(value) == value
    assert dataclasses.replace(policy, timeout_ms=6).timeout_ms == 6
    assert dataclasses.asdict(called)["url"] == "u"
    for public in (Trace, NestedToolResultEvent, ExecutionPolicy):
        assert dataclasses.is_dataclass(public)
        with pytest.raises(dataclasses.FrozenInstanceError):
            public.__setattr__(object.__new__(public), dataclasses.fields(public)[0].name, 1)
