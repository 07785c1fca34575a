"""How a model runs programs on each surface, as the checks of plugins need it. Knows no framework."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

Request: TypeAlias = tuple[str, Mapping[str, Any]]
"""What a model sends: the name of a tool that it is offered, and its input."""

_CALL = re.compile(r"\btools\.(\w+)\(")


class Face(Protocol):
    """One surface, as a model meets it in a framework."""

    @property
    def name(self) -> str:
        """What to call it in the name of a test."""
        ...

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools that a model is offered in place of all others, with direct calls where there are."""
        ...

    @property
    def tells_what_was_done(self) -> bool:
        """Whether the text of a failed program names the calls that it had made."""
        ...

    def request(self, program: str) -> Request:
        """Return what a model sends to run a program that calls tools as ``tools.name(input)``."""
        ...

    def answer(self, value: Any) -> tuple[bool, Any]:
        """Return whether a program, or a direct call, went well, and its value or error, of what a model was given."""
        ...


@dataclass(frozen=True)
class _CodeMode:
    name: str = "codeMode"
    offered: tuple[str, ...] = ("codeMode",)
    tells_what_was_done: bool = True

    def request(self, program: str) -> Request:
        return "codeMode", {"js": program}

    def answer(self, value: Any) -> tuple[bool, Any]:
        return True, value


@dataclass(frozen=True)
class _CodeCall:
    name: str = "CodeCall"
    offered: tuple[str, ...] = ("codecall_search", "codecall_describe", "codecall_execute", "codecall_invoke")
    tells_what_was_done: bool = False

    def request(self, program: str) -> Request:
        return "codecall_execute", {"script": _CALL.sub(r'callTool("\1", ', program)}

    def answer(self, value: Any) -> tuple[bool, Any]:
        if not isinstance(value, dict) or "status" not in value:
            raise AssertionError(f"a model was given {json.dumps(value, default=repr)}, which has no status")
        status = cast("Mapping[str, Any]", value)
        return (True, status["result"]) if status["status"] == "ok" else (False, status)


@dataclass(frozen=True)
class _ExecWait:
    name: str = "exec"
    offered: tuple[str, ...] = ("exec", "wait")
    tells_what_was_done: bool = True

    def request(self, program: str) -> Request:
        return "exec", {"code": program}

    def answer(self, value: Any) -> tuple[bool, Any]:
        if not isinstance(value, dict) or "status" not in value:
            raise AssertionError(f"a model was given {json.dumps(value, default=repr)}, which has no status")
        result = cast("Mapping[str, Any]", value)
        return (True, result["value"]) if result["status"] == "completed" else (False, result)


CODE_MODE: Face = _CodeMode()
CODE_CALL: Face = _CodeCall()
EXEC_WAIT: Face = _ExecWait()
