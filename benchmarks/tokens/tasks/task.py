"""What a task is: a question, what a model does about it in each way, and the answer that it gives in all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

Call = tuple[str, dict[str, Any]]
# Yields the calls of one turn, which are made at once, and is sent what they gave: an error where one failed.
Direct = Generator[list[Call], list[Any], Any]

_CALLED = re.compile(r"\btools\.(\w+)")


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question and how it is answered.

    ``direct`` makes the calls of a model that is offered all tools, and returns what it has to know in the end;
    ``programs`` are those that a model writes one after the other, of which the last returns it. ``read`` is what the
    model makes of that by reading, the same in each way, and ``answer`` what it then writes. ``searches`` are the
    queries of CodeCall, turn by turn. ``scripts`` stand in place of the programs where CodeCall takes other ones.
    With ``is_of_api`` the tools are operations of an OpenAPI document instead of those of MCP servers.
    """

    name: str
    question: str
    direct: Callable[[], Direct]
    programs: Sequence[str]
    searches: Sequence[Sequence[str]]
    answer: Callable[[Any], str]
    read: Callable[[Any], Any] = same
    scripts: Sequence[str] = ()
    is_of_api: bool = False

    @property
    def tools(self) -> list[str]:
        """The tools that the programs call, in the order of their first calls."""
        return list(dict.fromkeys(_CALLED.findall("\n".join(self.programs))))

    @property
    def code_call_scripts(self) -> list[str]:
        """What CodeCall runs: the same programs, whose tools are called by name."""
        return [re.sub(r"\btools\.(\w+)\(", r'callTool("\1", ', one) for one in self.scripts or self.programs]
