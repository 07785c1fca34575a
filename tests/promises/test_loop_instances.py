"""Large pydantic instances are serialised and compared in pieces, and come out as they would have at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    TypeAdapter,
    computed_field,
    field_serializer,
    model_serializer,
)
from suite import rounds

from codemode import Tool, run_code_mode_sync
from codemode.data.json_shape import count_values
from codemode.host import steps
from codemode.schemas import type_pieces
from codemode.schemas.type_pieces import MAX_PIECE_VALUES, PieceSerializer, are_equal


class Node(BaseModel):
    value: int = 0
    inside: list[Node] = []


class Aliased(BaseModel):
    model_config = ConfigDict(
        extra="allow", ser_json_timedelta="float", alias_generator=AliasGenerator(serialization_alias=str.upper)
    )
    rows: list[timedelta] = []
    named: dict[int, list[timedelta]] = {}
    hidden: list[int] = Field(default=[], exclude=True)
    maybe: list[Node] | None = None
    _private: int = PrivateAttr(default=3)


class Totals(BaseModel):
    rows: list[int]

    @computed_field
    @property
    def total(self) -> int:
        return sum(self.rows)


class Looks(BaseModel):
    rows: list[int]
    note: str = ""

    @field_serializer("note")
    def _write(self, _value: str) -> str:
        return f"{len(self.rows)} rows"


class Whole(BaseModel):
    rows: list[int]

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {"count": len(self.rows)}


class Sub(Node):
    more: int = 1


Doubled = Annotated[int, PlainSerializer(lambda value: value * 2)]
Joined = Annotated[list[int], PlainSerializer(lambda value: ",".join(map(str, value)))]
SMALL = st.integers(-9, 9)
NODES = st.recursive(
    st.builds(Node, value=SMALL), lambda inside: st.builds(Node, value=SMALL, inside=st.lists(inside, max_size=6))
)
TIMES = st.lists(st.timedeltas(timedelta(0), timedelta(9)), max_size=6)
ALIASED = st.builds(
    Aliased,
    rows=TIMES,
    named=st.dictionaries(SMALL, TIMES),
    hidden=st.lists(SMALL),
    maybe=st.none() | st.lists(NODES, max_size=3),
    other=st.lists(SMALL),
)
ROWS = st.lists(SMALL, max_size=20)
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Node, NODES),
    (list[Node], st.lists(NODES)),
    (dict[str, Node | None], st.dictionaries(st.text(max_size=2), NODES | st.none())),
    (Aliased, ALIASED),
    (list[dict[int, Aliased]], st.lists(st.dictionaries(SMALL, ALIASED, max_size=3), max_size=3)),
    (Totals, st.builds(Totals, rows=ROWS)),
    (Looks, st.builds(Looks, rows=ROWS)),
    (Whole, st.builds(Whole, rows=ROWS)),
    (RootModel[list[int]], st.builds(RootModel[list[int]], ROWS)),
    (list[Doubled], ROWS),
    (dict[str, Joined], st.dictionaries(st.text(max_size=2), ROWS)),
    (list[int | list[int]], st.lists(SMALL | ROWS)),
    (dict[str, Any], st.dictionaries(st.text(max_size=2), ROWS | NODES)),
    (Node, st.builds(Sub, value=SMALL, inside=st.lists(NODES, max_size=5))),
    (tuple[list[int], ...], st.lists(ROWS).map(tuple)),
]


@pytest.mark.parametrize(("kind", "instances"), CASES, ids=lambda one: str(one)[:40])
@settings(deadline=None, max_examples=rounds(4, 40))
@given(data=st.data(), size=st.integers(1, 12), round_trip=st.booleans())
def test_loop_an_instance_is_written_in_pieces_as_it_is_at_once(kind, instances, data, size, round_trip):
    instance = data.draw(instances)
    adapter = TypeAdapter(kind)
    whole = adapter.dump_python(instance, mode="json", by_alias=True, round_trip=round_trip, warnings=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type_pieces, "MAX_PIECE_VALUES", size)
        written = PieceSerializer(adapter).to_plain_json(instance, round_trip=round_trip)
    assert (written, str(written)) == (whole, str(whole))


LARGE = {
    "recursive": (Node, Node(inside=[Node(value=number) for number in range(20_000)])),
    "in lists": (dict[str, list[Node]], {"a": [Node(inside=[Node()] * 3000)] * 3}),
    "in a field": (Aliased, Aliased(rows=[timedelta(1)] * 30_000, maybe=[Node()] * 5000)),
    "members": (dict[int, dict[str, int]], {number: {"a": 1, "b": 2} for number in range(20_000)}),
}


@pytest.mark.parametrize(("kind", "instance"), LARGE.values(), ids=LARGE)
def test_loop_no_piece_of_an_instance_is_large(kind, instance, monkeypatch):
    sizes: list[int] = []
    real = PieceSerializer.serialize_whole

    def noting(self: Any, schema: Any, config: Any, piece: Any, how: Any) -> Any:
        sizes.append(count_values(piece, 1 << 40))
        return real(self, schema, config, piece, how)

    monkeypatch.setattr(PieceSerializer, "serialize_whole", noting)
    PieceSerializer(TypeAdapter(kind)).to_plain_json(instance, round_trip=False)
    assert len(sizes) > 10
    assert max(sizes) <= 2 * MAX_PIECE_VALUES + 10


def test_loop_a_large_instance_crosses_as_it_is():
    instance = LARGE["recursive"][1]
    tools = [
        Tool("give", execute=lambda _: instance, output_schema=Node),
        Tool("take", execute=lambda node: len(node.inside), input_schema=Node),
    ]
    assert run_code_mode_sync("const node = await tools.give({}); return await tools.take(node)", tools) == 20_000


@settings(deadline=None)
@given(st.one_of(NODES, ALIASED, st.lists(NODES)), st.one_of(NODES, ALIASED, st.lists(NODES)))
def test_loop_instances_are_compared_as_they_compare_themselves(one, other):
    assert are_equal(one, other) == (one == other)
    copies = TypeAdapter(type(one)).validate_python(TypeAdapter(type(one)).dump_python(one))
    assert are_equal(one, copies) == (one == copies)


def test_loop_comparing_takes_steps_and_stops():
    def spent() -> int:
        raise steps.WorkStopped

    one, other = (Node(inside=[Node() for _ in range(1000)]) for _ in range(2))
    with pytest.raises(steps.WorkStopped):
        steps.run_with_step_budget(lambda: are_equal(one, other), 100, spent)


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (True, 1), ([1], (1,)), ({"a": 1}, {"b": 1}), ([1, 2], [1]), (1, "1")]
)
def test_loop_plain_values_are_compared_as_they_compare_themselves(one, other):
    assert are_equal(one, other) == (one == other)
    assert are_equal([one], [other]) == ([one] == [other])
