"""The schemas of the tool itself. They refuse less than is checked: what is wrong is answered, not refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .limits import WIRE_NAMES
from .options import RunOptions

OUTER_TOOL = "codemode.run"

_TEXT = {"type": "string"}
_CODE = "An ES module, JavaScript or TypeScript. It leaves its result in globalThis.__codemode_result__."
_LIMITS = "Limits of this run, where other than the usual are wanted."
_CAPABILITIES = "Ids of servers that will be used: they are connected, and their declarations answered."


def input_schema(options: RunOptions) -> dict[str, Any]:
    """Return the JSON Schema of a request."""
    limits = {name: {"type": "integer", "description": _most(options, option)} for option, name in WIRE_NAMES.items()}
    return {
        "type": "object",
        "properties": {
            "code": {**_TEXT, "description": _CODE},
            "limits": {"type": "object", "properties": limits, "description": _LIMITS},
            "requestedCapabilities": {"type": "array", "items": dict(_TEXT), "description": _CAPABILITIES},
        },
        "required": ["code"],
    }


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of a response."""
    log = _object(level={"enum": ["debug", "log", "warn", "error"]}, message=_TEXT, timeMs={"type": "integer"})
    diagnostic = _object(
        ("severity", "code", "message"),
        severity={"enum": ["error", "warning", "info"]},
        **dict.fromkeys(("code", "message", "hint", "path", "errorClass"), _TEXT),
    )
    call = _object(
        ("serverId", "toolName", "durationMs", "ok"),
        serverId=_TEXT,
        toolName=_TEXT,
        durationMs={"type": "integer"},
        ok={"type": "boolean"},
        error=_TEXT,
    )
    return _object(
        ("logs", "result", "diagnostics"),
        logs={"type": "array", "items": log},
        result={},
        diagnostics={"type": "array", "items": diagnostic},
        toolTrace={"type": "array", "items": call},
        declarations=_TEXT,
    )


def _most(options: RunOptions, option: str) -> str:
    return f"{getattr(options.limits, option)} where it is not given, at most {getattr(options.ceilings, option)}."


def _object(required: tuple[str, ...] | None = None, **properties: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: dict(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": members, "required": list(properties if required is None else required)}
