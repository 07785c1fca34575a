"""Types of the facts that a worker reports about a program. The data is untrusted."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class ProgramProblem(TypedDict):
    """A certain error in a program; line and column count from 1."""

    message: str
    line: int
    column: int


class ToolCallFact(TypedDict):
    """A call of a tool by its literal name. ``input`` describes its literal argument."""

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


class ResultFieldRead(TypedDict):
    """A field of a tool's result that the program reads.

    ``asked``: fields of the same result that the program tests; ``doubtful``: it may test, or catches the failure.
    """

    tool: str
    name: str
    line: int
    column: int
    asked: NotRequired[list[str]]
    doubtful: NotRequired[bool]


class NamedCallFact(TypedDict):
    """A call that passes a tool's literal name as text. ``caught``: the program may continue if it fails."""

    name: str
    caught: bool
    line: int
    column: int


ModuleImport = TypedDict(
    "ModuleImport",
    {"from": str, "names": list[list[str]], "places": list[list[int]], "line": int, "column": int},
)
"""An import: pairs of exported name (``*`` for all) and local name, which a re-export lacks.

``places`` are the line and column of each name.
"""

DynamicImport = TypedDict("DynamicImport", {"from": str | None, "line": int, "column": int})
"""An ``import()``; ``from`` is None if its argument is not a literal."""

NamespaceCall = TypedDict("NamespaceCall", {"from": str, "name": str, "line": int, "column": int})
"""A call of a member of a module namespace that the program uses in no other way and does not catch."""


class ModuleFacts(TypedDict):
    """The imports of a program that is a module. ``prefix`` is the number of bytes before its first line.

    ``take`` is the global that they read, if any. ``last`` is the offset and length of the code that keeps the value of
    the last statement, in UTF-16 units.
    """

    prefix: int
    take: str | None
    imports: list[ModuleImport]
    dynamic: list[DynamicImport]
    namespace_calls: list[NamespaceCall]
    last: NotRequired[list[int]]


class ProgramFacts(TypedDict, total=False):
    """Facts about a program. ``shadowed``: it declares ``tools`` itself, or uses it in an unknown way.

    ``lists``: it reads the names on ``tools``. The other facts are there if they were requested. ``names``: all names
    in use or declared, with the byte offsets of their first uses in the UTF-8 source; None: uncertain. ``definitions``:
    the literal arguments of `getTool`. ``last``: the UTF-16 offsets of the expression that is the last statement.
    """

    calls: list[ToolCallFact]
    modules: list[ModuleUse]
    shadowed: bool
    lists: bool
    reads: list[ResultFieldRead]
    names: dict[str, list[int]] | None
    loops: list[LoopFact]
    named_calls: list[NamedCallFact]
    definitions: list[str]
    last: list[int]
    module: ModuleFacts
