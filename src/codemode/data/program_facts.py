"""Facts about a program, as a worker says them in plain JSON. Imported for types alone: it may have said anything."""

from __future__ import annotations

from typing import Any, TypedDict


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


class Facts(TypedDict, total=False):
    """What a program certainly does. ``shadowed``: it has a ``tools`` of its own."""

    calls: list[CallFact]
    modules: list[ModuleUse]
    shadowed: bool
