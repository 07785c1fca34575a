"""One program on each of the four surfaces, and all that its model reads of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from codemode import (
    CallContext,
    CodeModeError,
    ModuleServer,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    failure_text,
)

SURFACES = ("codeMode", "exec", "CodeCall", "modules")


@dataclass
class Answer:
    """What a program gave, what a model reads in all, and the answer as it came."""

    value: Any
    text: str
    whole: Any
    error: Exception | None = None


def answer_on(surface: str, tools: Any, program: str, options: Any = None, settings: Any = None) -> Answer:
    """Run a program in which ``@pay({...})`` stands for a call of the tool `pay`, as each surface writes it."""
    if surface == "codeMode":
        return _on_code_mode(tools, program.replace("@", "tools."), {**(options or {}), **(settings or {})})
    if surface == "exec":
        with_time = {"waitTimeoutMs": 60_000, **(options or {})}
        pair = create_exec_wait_tools(tools, with_time, settings=settings)
        whole = pair.exec.execute_sync({"code": program.replace("@", "tools.")})
        said = [whole.get("error", ""), *(one["text"] for one in whole.get("output", ()) if one["type"] == "text")]
        return Answer(whole.get("value"), "\n".join(said), whole)
    if surface == "CodeCall":
        script = re.sub(r"@(\w+)\(", r"callTool('\1', ", program)
        whole = create_code_call_tools(tools, {**(options or {}), "settings": settings or {}}).execute_sync(
            {"script": script}
        )
        said = [*whole.get("warnings", ()), *(one["message"] for one in whole.get("logs", ()))]
        return Answer(whole.get("result"), "\n".join(said), whole, whole.exception)
    whole = create_modules_tool([ModuleServer("shop", tools)], options, settings=settings).execute_sync(
        {"code": as_module(program)}
    )
    said = [one["message"] for one in (*whole["diagnostics"], *whole["logs"])]
    return Answer(whole["result"], "\n".join(said), whole, whole.exception)


def as_module(program: str) -> str:
    """The program as a module, its calls imported on a line in front of it."""
    names = sorted(set(re.findall(r"@(\w+)\(", program)))
    head = f'import {{ {", ".join(names)} }} from "@codemode/servers/shop";\n' if names else ""
    return head + program.replace("@", "")


def _on_code_mode(tools: Any, js: str, options: Any) -> Answer:
    made = create_code_mode_tool(tools, options)
    try:
        value = made.execute_sync({"js": js}, call=CallContext(tool_call_id="call-1"))
    except CodeModeError as error:
        return Answer(None, failure_text(error, js), None, error)
    shown = made.to_model_output(value, tool_call_id="call-1")
    text = shown["value"] if isinstance(shown["value"], str) else json.dumps(shown["value"])
    return Answer(value, text, shown)
