"""Arguments of the functions of ``@codemode/discovery``, read and refused. Knows no server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...data.narrowing import is_mapping, is_sequence
from ...errors import CodeModeToolError
from ...schemas.compiled import json_type

DETAILS = ("name", "description", "full")
USAGE: Mapping[str, str] = {
    "listServers": "listServers()",
    "describeServer": "describeServer(serverId)",
    "listTools": 'listTools(serverId, { detail: "name" | "description" | "full" })',
    "getTool": "getTool(serverId, toolName)",
    "searchTools": 'searchTools("words", { detail, serverId, limit })',
}
_MAX_SHOWN = 100


class Arguments:
    """The arguments of one call, in their order. What is not given may also be null."""

    def __init__(self, function: str, given: Any) -> None:
        self.function = function
        if not is_sequence(given):
            self.refuse("", "a list of arguments", given)
        self._given: Sequence[Any] = given

    def text(self, at: int, name: str) -> str:
        """Return a string that must be there, and not be empty."""
        value = self._at(at)
        if not isinstance(value, str) or not value.strip():
            self.refuse(f"/{at}", f"{name} to be a string that is not empty", value, name)
        return value

    def detail(self, at: int, default: str) -> str:
        """Return how much of each tool is asked for."""
        value = self._options(at).get("detail")
        if value is None:
            return default
        if value not in DETAILS:
            self.refuse(f"/{at}/detail", f"detail to be one of {', '.join(DETAILS)}", value, "detail")
        return value

    def server(self, at: int) -> str | None:
        """Return the server that options name, if they name one."""
        value = self._options(at).get("serverId")
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(f"/{at}/serverId", "serverId to be a string that is not empty", value, "serverId")
        return value

    def limit(self, at: int, most: int) -> int:
        """Return how many are asked for: at least 1, and ``most`` where it is more or not said."""
        value = self._options(at).get("limit")
        if value is None:
            return most
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value < 1 or value != value // 1:
            self.refuse(f"/{at}/limit", f"limit to be an integer from 1 to {most}", value, "limit")
        return min(int(value), most)

    def refuse(self, pointer: str, expected: str, value: Any, name: str = "") -> NoReturn:
        """Raise `CodeModeToolError` for an argument, with the reason "validation"."""
        received = _shown(value)
        usage = USAGE.get(self.function, self.function)
        message = f"{self.function}: expected {expected}, got {received}. It is called as {usage}."
        error = CodeModeToolError(
            message,
            details={
                "tool_name": self.function,
                "schema": "input",
                "problems": [{"path": name, "message": f"expected {expected}, got {received}"}],
                "pointer": pointer,
                "expected": expected,
                "received": received,
                "hint": f"Call it as {usage}.",
            },
        )
        error.reason = "validation"
        raise error

    def _at(self, at: int) -> Any:
        return self._given[at] if at < len(self._given) else None

    def _options(self, at: int) -> Mapping[str, Any]:
        value = self._at(at)
        if value is None:
            return {}
        if not is_mapping(value):
            self.refuse(f"/{at}", "options to be an object", value, "options")
        return value


def _shown(value: Any) -> str:
    """Return the type of a value, and of a short one the value."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:_MAX_SHOWN])
    if isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() <= _MAX_SHOWN):
        return str(value).lower()
    return f"an {json_type(value)}" if json_type(value)[0] in "ao" else f"a {json_type(value)}"
