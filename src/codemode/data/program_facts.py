"""Facts about a program, as a worker says them in plain JSON. Imported for types alone: it may have said anything."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class ProgramProblem(TypedDict):
    """What is certainly wrong with a program, and where; lines and columns count from 1."""

    message: str
    line: int
    column: int


class CallFact(TypedDict):
    """One call of a tool by its literal name. ``input`` is what is known of its literal argument."""

    name: str
    input: Any
    line: int
    column: int


class ModuleUse(TypedDict):
    """One use of modules, of a ``kind`` such as ``import``."""

    kind: str
    line: int
    column: int


class LoopFact(TypedDict):
    """One loop, of a ``kind`` such as ``for-of``."""

    kind: str
    line: int
    column: int


class ReadFact(TypedDict):
    """One field of a tool's result that is read and taken for granted.

    ``asked``: what the program asks for of the same result; ``doubtful``: it may ask, or catches what fails.
    """

    tool: str
    name: str
    line: int
    column: int
    asked: NotRequired[list[str]]
    doubtful: NotRequired[bool]


class NamedCallFact(TypedDict):
    """One call that gives a tool's literal name as text. ``caught``: the program may go on when it fails."""

    name: str
    caught: bool
    line: int
    column: int


ModuleImport = TypedDict(
    "ModuleImport",
    {"from": str, "names": list[list[str]], "places": list[list[int]], "line": int, "column": int},
)
"""One import: pairs of what is exported (``*`` for all of it) and its local name, which a re-export has not.

``places`` are the line and column of each name.
"""

DynamicImport = TypedDict("DynamicImport", {"from": str | None, "line": int, "column": int})
"""One ``import()``; from None: its argument is no literal."""

NamespaceCall = TypedDict("NamespaceCall", {"from": str, "name": str, "line": int, "column": int})
"""One call of a name on a whole module, which the program never looks at in another way and does not catch."""


class ModuleFacts(TypedDict):
    """What a program that is a module imports. ``prefix`` is how many bytes stand in front of its first line.

    ``take`` is the one global that they read, if there is any. ``last`` is where what keeps the value of the last
    statement stands behind them, and how long it is, both in UTF-16 units.
    """

    prefix: int
    take: str | None
    imports: list[ModuleImport]
    dynamic: list[DynamicImport]
    namespace_calls: list[NamespaceCall]
    last: NotRequired[list[int]]


class Facts(TypedDict, total=False):
    """What a program certainly does. ``shadowed``: it has a ``tools`` of its own, or does with it what nobody knows.

    ``lists``: it reads which names there are on it. The rest is there when it was asked for. ``names``: every name in
    use or declared, with the places of the first uses as byte offsets in the UTF-8 source; None: not certain.
    ``definitions``: the names that `getTool` is called with. ``last``: the UTF-16 offsets between which the expression
    stands that is the last statement.
    """

    calls: list[CallFact]
    modules: list[ModuleUse]
    shadowed: bool
    lists: bool
    reads: list[ReadFact]
    names: dict[str, list[int]] | None
    loops: list[LoopFact]
    named_calls: list[NamedCallFact]
    definitions: list[str]
    last: list[int]
    module: ModuleFacts
