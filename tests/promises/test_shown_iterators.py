"""To show an iterator takes nothing from it: what a person has seen is what a tool reads."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pausing import PAUSING, start, through_json
from pydantic import AfterValidator, BaseModel, model_validator
from suite import each_row
from waiting import within

from codemode import Tool, continue_interrupt
from codemode.schemas.type_traits import buffer_iterators

OK = {"approved": True}
Cents = Annotated[int, AfterValidator(lambda value: value * 100)]


class Lazy(BaseModel):
    numbers: Iterable[int]


class InCents(BaseModel):
    numbers: Iterable[Cents]


class Drawn(BaseModel):
    numbers: Generator[int, None, None]


class Made(BaseModel):
    numbers: Annotated[list[int], AfterValidator(lambda values: (value * 2 for value in values))]


class Mapped(BaseModel):
    numbers: Annotated[list[int], AfterValidator(lambda values: map(int, values))]


@dataclass(frozen=True)
class Frozen:
    numbers: Iterable[int]


class Pair(NamedTuple):
    numbers: Iterable[int]


def read(value: Any) -> list[int]:
    found = value["numbers"] if isinstance(value, dict) else getattr(value, "numbers", None)
    return list(next(iter(value)) if found is None else found)


KEYED = {"numbers": [1, 2]}
KINDS = [
    (Lazy, KEYED, [1, 2]),
    (InCents, KEYED, [100, 200]),
    (Drawn, KEYED, [1, 2]),
    (Made, KEYED, [2, 4]),
    (Mapped, KEYED, [1, 2]),
    (Frozen, KEYED, [1, 2]),
    (Pair, [[1, 2]], [1, 2]),
    (dict[str, Iterable[int]], KEYED, [1, 2]),
    (list[Iterable[int]], [[1, 2]], [1, 2]),
    (tuple[tuple[Iterable[int], int], int], [[[1, 2], 3], 4], None),
]


@each_row("kind, given, expected", KINDS)
def test_an_iterator_runs_as_it_was_shown(kind, given, expected):
    ran = []

    def execute(value):
        ran.append(list(value[0][0]) if expected is None else read(value))

    tools = [Tool("sum", execute=execute, input_schema=kind, needs_approval=True)]
    interrupt = through_json(start(f"return await tools.sum({given})", tools, PAUSING))
    within(continue_interrupt(interrupt, OK, tools=tools, options=PAUSING))
    assert ran == [expected or [1, 2]]
    assert str(ran[0]) in str(interrupt.input)


class Node(BaseModel):
    child: Node | None = None
    parent: Any = None

    @model_validator(mode="after")
    def know_parent(self) -> Node:
        if self.child is not None:
            self.child.parent = self
        return self


def test_values_in_circles_and_of_any_depth_are_left_as_they_are():
    node = Node(child=Node())
    assert buffer_iterators(node) is node
    assert node.child is not None
    assert node.child.parent is node
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert buffer_iterators(deep) is deep
