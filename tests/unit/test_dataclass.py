"""The package's `dataclass` makes what `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import typing
from dataclasses import field
from typing import Any, ClassVar

import pytest

import codemode.dataclass as cheap
from codemode.options.parts import CodeModeOptions, ExecutionPolicy
from codemode.trace.events import FetchResultEvent, NestedToolResultEvent
from codemode.trace.trace import Trace

_KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "slots": {"slots": True},
    "frozen": {"frozen": True},
    "frozen slots": {"frozen": True, "slots": True},
    "by name": {"frozen": True, "kw_only": True, "slots": True},
    "bare": {"frozen": True, "repr": False, "eq": False},
}


def _family(make: Any, options: dict[str, bool]) -> tuple[Any, Any]:
    @make(**options)
    class Base:
        """A base."""

        kind: ClassVar[str] = "base"
        x: int
        hidden: str = field(default="h", repr=False, compare=False)
        items: list[int] = field(default_factory=list)
        last: Any = field(default=None, kw_only=True, metadata={"check": 1})

        def __post_init__(self) -> None:
            object.__setattr__(self, "items", [*self.items, 0])

        @property
        def double(self) -> int:
            return self.x * 2

    @make(**options)
    class Derived(Base):
        """A class with a base."""

        kind: ClassVar[str] = "derived"
        x: int = 5
        more: str = "m"

    return Base, Derived


_PAIRS = [
    pytest.param(mine, theirs, id=f"{kind} {mine.__name__}")
    for kind, options in _KINDS.items()
    for mine, theirs in zip(_family(cheap.dataclass, options), _family(dataclasses.dataclass, options), strict=True)
]
each_class = pytest.mark.parametrize(("mine", "theirs"), _PAIRS)


def _outcome(act: Any) -> object:
    try:
        return act()
    except Exception as error:  # what is compared is whatever it is
        return type(error), str(error)


@each_class
def test_the_class_is_described_alike(mine: Any, theirs: Any):
    def described(one: Any) -> list[object]:
        fields = [(f.name, f.type, f.repr, f.compare, f.kw_only, dict(f.metadata)) for f in dataclasses.fields(one)]
        parameters = {name: getattr(one.__dataclass_params__, name) for name in ("init", "repr", "eq", "frozen")}
        slots = getattr(one, "__slots__", None)
        names = (one.__name__, one.__qualname__, one.__module__, one.__doc__, one.__init__.__qualname__)
        pseudo = list(one.__dataclass_fields__)
        hints = (typing.get_type_hints(one), typing.get_type_hints(one.__init__))
        signature = str(inspect.signature(one))
        return [fields, parameters, slots, names, pseudo, hints, signature, one.__match_args__, one.kind]

    assert dataclasses.is_dataclass(mine)
    assert described(mine) == described(theirs)
    differing = mine.__dict__.keys() ^ theirs.__dict__.keys()
    assert {name for name in differing if not name.startswith("__annot")} == set()  # where later Pythons keep them
    assert (mine.__hash__ is None, "last" in mine.__dict__) == (theirs.__hash__ is None, "last" in theirs.__dict__)


_ACTS: list[Any] = [
    lambda one: re.sub("0x[0-9a-f]+", "", repr(one(x=1))),
    lambda one: re.sub("0x[0-9a-f]+", "", repr(one(x=1, items=[3], last=one))),
    lambda one: one(1, "h", [4]).items,
    lambda one: one(x=1) == one(x=1, hidden="other"),
    lambda one: one(x=1) == one(x=2),
    lambda one: one(x=1) == (1, "h", [0], None),
    lambda one: hash(one(x=1, last="z")) == hash(one(x=1, last="z")),
    lambda one: one(x=1, unknown=2),
    lambda one: setattr(one(x=1), "x", 2),
    lambda one: _outcome(lambda: setattr(one(x=1), "unknown", 2)) is None,  # with slots theirs fails otherwise
    lambda one: delattr(one(x=1), "last"),
    lambda one: dataclasses.asdict(one(x=1, last={"a": 1})),
    lambda one: dataclasses.astuple(one(x=1)),
    lambda one: dataclasses.asdict(dataclasses.replace(one(x=1), x=7, last="z")),
    lambda one: dataclasses.replace(one(x=1), unknown=7),
    lambda one: dataclasses.asdict(copy.deepcopy(one(x=1, last=[2]))),
    lambda one: dataclasses.asdict(copy.copy(one(x=1))),
    lambda one: (one(x=4).double, one(x=4).kind, hasattr(one(x=4), "__dict__")),
]


@each_class
def test_its_instances_behave_alike(mine: Any, theirs: Any):
    for number, act in enumerate(_ACTS):
        assert str(_outcome(lambda act=act: act(mine))) == str(_outcome(lambda act=act: act(theirs))), number


def test_fields_without_values_are_asked_for():
    mine, theirs = (_family(make, {"frozen": True})[0] for make in (cheap.dataclass, dataclasses.dataclass))
    assert _outcome(mine) == _outcome(theirs) != mine(x=1)


@pytest.mark.parametrize("make", [cheap.dataclass, dataclasses.dataclass])
def test_what_a_class_has_of_its_own_stays(make: Any):
    @make(frozen=True)
    class Own:
        x: int

        def __init__(self) -> None:
            object.__setattr__(self, "x", 1)

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    assert (Own().x, Own() == 3, repr(Own()), hash(Own())) == (1, True, "own", hash((1,)))


@pytest.mark.parametrize("make", [cheap.dataclass, dataclasses.dataclass])
def test_a_class_is_frozen_as_its_base_is(make: Any):
    for base_is_frozen in (True, False):
        base = dataclasses.dataclass(frozen=base_is_frozen)(type("Base", (), {}))
        with pytest.raises(TypeError, match="frozen"):
            make(frozen=not base_is_frozen)(type("Derived", (base,), {}))


def test_what_shows_itself_ends():
    mine = _family(cheap.dataclass, {})[0](x=1)
    mine.last = mine
    assert repr(mine).endswith("last=...)")


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("slots", [True, False])
def test_a_user_may_go_on_with_either(frozen: bool, slots: bool):
    """The user's class is of `dataclasses`, its base of the package."""
    base, _ = _family(cheap.dataclass, {"frozen": frozen, "slots": slots})

    @dataclasses.dataclass(frozen=frozen)
    class Theirs(base):
        own: int = 3

    made = Theirs(1, own=4)
    assert dataclasses.astuple(made) == (1, "h", [0], None, 4)
    assert made == Theirs(1, own=4) != Theirs(1)
    if frozen:
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            made.x = 2

    class Plain(base):
        pass

    Plain(1).added = 2  # as with dataclasses, those of a class below that is none


def test_users_values_can_be_replaced_and_pickled():
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
