"""The Python peers, each as "run this program, return its value". Runs in the peers' own environment; no codemode here.

Every tool is an async no-op whose input is validated. Limits on the number of calls and of processes are raised so that
no workload is refused or queued; otherwise a peer does what it does by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks import programs
from benchmarks.programs import HOLD_JS, HOLD_PYTHON, Program, text_of

_CALL = re.compile(r"(CALL|START)\((\w+)(?:, (\w+)=(\w+))?\)")
_RESULT = re.compile(r"RESULT\((.*)\)$", re.MULTILINE)
_MANY_CALLS = 1000


@dataclass(slots=True)
class Sandbox:
    """``run`` takes a text in the peer's dialect; ``direct`` is the framework's own way of calling one tool."""

    run: Callable[[str], Awaitable[Any]]
    write: Callable[[str], str]
    direct: Callable[[], Awaitable[Any]] | None = None
    javascript: bool = False

    def program(self, program: Program, serial: int) -> str:
        """Return the program in the peer's dialect."""
        text = program.js if self.javascript else program.python
        return text_of(self.write(text), "//" if self.javascript else "#", serial, unseen=program.unseen)

    def hold(self) -> str:
        """Return the program that waits in a call."""
        return self.write(HOLD_JS if self.javascript else HOLD_PYTHON)


class Tools:
    """The tools; calls of ``hold`` wait until they are let go."""

    def __init__(self) -> None:
        self.arrived = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    def functions(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return the functions by name."""

        async def noop(n: int) -> int:
            """Return what was given."""
            return n

        async def rows() -> list[dict[str, Any]]:
            """Return about 1 MiB of JSON."""
            return programs.rows()

        async def hold(n: int) -> int:
            """Wait."""
            self.arrived.release()
            await self.release.wait()
            return n

        return {"noop": noop, "rows": rows, "hold": hold}


def _called_by_name(text: str) -> str:
    def call(found: re.Match[str]) -> str:
        kind, name, key, value = found.groups()
        arguments = f"{key}={value}" if key else ""
        return f"{'await ' if kind == 'CALL' else ''}{name}({arguments})"

    return _RESULT.sub(r"\1", _CALL.sub(call, text))


def _called_through_call_tool(text: str) -> str:
    def call(found: re.Match[str]) -> str:
        kind, name, key, value = found.groups()
        started = f"call_tool('{name}', {{{f'{key!r}: {value}' if key else ''}}})"
        return f"(await {started})['result']" if kind == "CALL" else started

    return _RESULT.sub(r"return \1", _CALL.sub(call, text))


def _wrapped(text: str) -> str:
    return f"await (async () => {{ {text}\n }})()"


@asynccontextmanager
async def monty(tools: Tools, *, fresh: bool = False) -> AsyncGenerator[Sandbox]:
    """Monty by itself: a session per program, in a process that is kept, or (``fresh``) in one of its own."""
    from pydantic import validate_call

    engine: Any = import_module("pydantic_monty")
    functions = {name: validate_call(function) for name, function in tools.functions().items()}
    settings: dict[str, Any] = {"min_processes": 2, "max_processes": 32}
    if fresh:
        settings["max_checkouts_per_worker"] = 1
    async with engine.AsyncMonty(**settings) as pool:

        async def run(text: str) -> Any:
            async with pool.checkout() as session:
                return await session.feed_run(text, external_lookup=functions)

        yield Sandbox(run, _called_by_name)


@asynccontextmanager
async def harness(tools: Tools) -> AsyncGenerator[Sandbox]:
    """The code mode of pydantic-ai-harness, in an agent's run."""
    from benchmarks.frameworks import pydantic_ai_agent

    functions = list(tools.functions().values())
    with_code_mode = pydantic_ai_agent(
        functions, [import_module("pydantic_ai_harness").CodeMode(max_tool_calls=_MANY_CALLS)]
    )
    plain = pydantic_ai_agent(functions)
    yield Sandbox(
        lambda text: with_code_mode("run_code", {"code": text}), _called_by_name, lambda: plain("noop", {"n": 1})
    )


@asynccontextmanager
async def langchain_quickjs(tools: Tools) -> AsyncGenerator[Sandbox]:
    """The interpreter of langchain-quickjs with a fresh context per program, in an agent's run."""
    from langchain_core.tools import tool

    from benchmarks.frameworks import langchain_agent

    made = [tool(function) for function in tools.functions().values()]
    middleware: Any = import_module("langchain_quickjs").CodeInterpreterMiddleware(
        ptc=list(made), mode="call", subagents=False, max_ptc_calls=_MANY_CALLS
    )
    with_code_mode, plain = langchain_agent(made, [middleware]), langchain_agent(made)

    async def run(text: str) -> Any:
        told = str(await with_code_mode("eval", {"code": text}))
        return told.removeprefix("<result>").removesuffix("</result>")

    yield Sandbox(run, _wrapped, lambda: plain("noop", {"n": 1}), javascript=True)


@asynccontextmanager
async def fastmcp(tools: Tools) -> AsyncGenerator[Sandbox]:
    """The code mode transform of FastMCP, through its client within the process."""
    framework: Any = import_module("fastmcp")
    transform: Any = import_module("fastmcp.experimental.transforms.code_mode").CodeMode(max_tool_calls=None)
    server, plain = framework.FastMCP("measured", transforms=[transform]), framework.FastMCP("plain")
    for function in tools.functions().values():
        server.tool(function)
        plain.tool(function)
    async with framework.Client(server) as client, framework.Client(plain) as plain_client:

        async def run(text: str) -> Any:
            (content,) = (await client.call_tool("execute", {"code": text})).content
            return content.text

        yield Sandbox(run, _called_through_call_tool, lambda: plain_client.call_tool("noop", {"n": 1}))


def fresh_monty(tools: Tools) -> AbstractAsyncContextManager[Sandbox]:
    """Monty with a process of its own for each program."""
    return monty(tools, fresh=True)


SANDBOXES: dict[str, Callable[[Tools], AbstractAsyncContextManager[Sandbox]]] = {
    "monty": monty,
    "monty-fresh": fresh_monty,
    "harness": harness,
    "langchain-quickjs": langchain_quickjs,
    "fastmcp": fastmcp,
}
