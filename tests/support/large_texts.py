"""CodeCall with the sidecar on, over tools that give and take large texts."""

from __future__ import annotations

import json
from typing import Any

from codemode import CodeCallToolset, Tool, create_code_call_tools

# What takes one, two, three and four bytes, what JSON escapes, and what a place looks like in the host's own JSON.
LINE = '0E0 "a\\b"\t\u00e9 \u4e16 \U0001f600 end\n'
TEXT = LINE * 400
OTHER = "other " * 1000
NUMBERS = json.dumps({"numbers": [*range(2000)], "big": 2**60})
GIVEN = {"text": TEXT, "other": OTHER, "numbers": NUMBERS, "short": "s" * 1000, "deep": [{"in": [TEXT]}], "n": 7}
READ = "const given = await callTool('read'), { text } = given;"
LARGE = {"text": {"type": "string"}}
LARGE_SCHEMA = {"type": "object", "properties": LARGE, "required": ["text"]}


class LargeTexts:
    """The tools, which note in ``taken`` what they were given."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def tools(self, **store: Any) -> list[Tool]:
        def take(value: Any) -> Any:
            self.taken.append(value)
            return {"taken": len(self.taken)}

        return [
            Tool("read", execute=lambda _value: GIVEN),
            Tool("whole", execute=lambda _value: TEXT),
            Tool("of_size", execute=lambda value: "x" * value["n"]),
            Tool("docs.store", execute=take, input_schema=LARGE_SCHEMA, **store),
            Tool("take", execute=take),
        ]

    def code_call(self, sidecar: Any = None, *, store: Any = None, **options: Any) -> CodeCallToolset:
        """Return a set of them; loops are allowed, and so is to take long for much text."""
        on = {"sidecar": {"enabled": True, **(sidecar or {})}, "vm": {"preset": "balanced", "timeoutMs": 60_000}}
        return create_code_call_tools(self.tools(**(store or {})), {**on, **options})


def answer(script: str, sidecar: Any = None, **options: Any) -> Any:
    """Return what a script comes to."""
    return LargeTexts().code_call(sidecar, **options).execute_sync({"script": script})


def result(script: str, sidecar: Any = None, **options: Any) -> Any:
    """Return the result of a script that must end well."""
    answered = answer(script, sidecar, **options)
    assert answered["status"] == "ok", answered
    return answered["result"]


def error(status: str, script: str, sidecar: Any = None, **options: Any) -> Any:
    """Return the error of a script that must end so."""
    answered = answer(script, sidecar, **options)
    assert answered["status"] == status, answered
    return answered["error"]
