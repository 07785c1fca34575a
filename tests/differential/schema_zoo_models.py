"""Python types whose JSON Schema the declarations must render."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from schema_zoo import Specimen
from typing_extensions import TypedDict  # pydantic refuses that of typing before Python 3.12

ItemT = TypeVar("ItemT")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    """Where something is."""

    street: str = Field(description="Street and number", min_length=1)
    city: str = "Berlin"
    zip_code: str | None = Field(default=None, pattern=r"^\d+$")


class Person(BaseModel):
    name: str
    home: Address
    work: Address | None = None
    tags: set[str] = set()
    level: Level = Level.LOW
    color: Color | None = None


class Node(BaseModel):
    value: int
    children: list[Node] = []
    parent: Node | None = None


class Left(BaseModel):
    right: Right | None = None


class Right(BaseModel):
    left: Left
    name: str


class Page(BaseModel, Generic[ItemT]):
    items: list[ItemT]
    next_cursor: str | None = None


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"] = "square"
    side: float


class Group(BaseModel):
    kind: Literal["group"]
    shapes: list[AnyShape]


AnyShape = Annotated[Circle | Square | Group, Field(discriminator="kind")]


class Drawing(BaseModel):
    shapes: list[AnyShape]
    background: AnyShape | None = None


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Aliased(BaseModel):
    from_: str = Field(alias="from")
    dashed: int = Field(alias="a-b")


class Scalars(BaseModel):
    when: dt.datetime
    day: dt.date
    span: dt.timedelta
    id: uuid.UUID
    amount: decimal.Decimal
    data: bytes
    anything: Any
    nothing: None
    ratio: float | int = 1


class Containers(BaseModel):
    pair: tuple[int, str]
    many: tuple[int, ...]
    table: dict[str, list[dict[str, int]]]
    by_color: dict[Color, int]
    choice: Literal["a", 1, True] | None
    nested: list[list[str | int]]
    maybe: list[Address | None] | None = None
    counts: dict[str, int] = {}


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Line:
    start: Point
    end: Point
    label: str | None = None


@dataclasses.dataclass
class Chain:
    link: Chain | None = None


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Shelf(TypedDict, total=False):
    movies: list[Movie]
    owner: Person


class Pair(NamedTuple):
    a: int
    b: str = "b"


Node.model_rebuild()
Left.model_rebuild()
Group.model_rebuild()
Drawing.model_rebuild()

TYPES: dict[str, Any] = {
    **{
        t.__name__: t
        for t in (Address, Person, Node, Left, Right, Circle, Drawing, Closed, Open, Aliased, Scalars, Containers)
    },
    **{t.__name__: t for t in (Point, Line, Chain, Movie, Shelf, Pair, Color, Level)},
    "PageOfAddress": Page[Address],
    "PageOfPages": Page[Page[int]],
    "PageOfNodes": Page[Node],
    "AnyShape": AnyShape,
    "ListOfPeople": list[Person],
    "MapOfPoints": dict[str, Point],
    "OptionalPerson": Person | None,
    "MixedUnion": int | str | list[int] | dict[str, Movie] | None,
    "NestedTuple": tuple[tuple[int, int], list[tuple[str, Point]]],
}


def python_schemas() -> list[Specimen]:
    return [
        Specimen(f"python_{name}_{mode}", TypeAdapter(kind).json_schema(mode=mode))
        for name, kind in TYPES.items()
        for mode in ("validation", "serialization")
    ]
