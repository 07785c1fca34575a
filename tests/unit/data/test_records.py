"""Records are frozen values, like the dataclasses that they stand in for."""

from __future__ import annotations

import copy
import pickle

import pytest

from codemode.data.records import record


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
