"""Measures what README.md says in its comparison with langchain-quickjs: ``python tests/comparison.py``.

Needs ``pip install langchain-quickjs aiosqlite`` beside this package. Every point is measured in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

warnings.simplefilter("ignore")

from langchain.agents import create_agent  # noqa: E402 - its imports warn
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware  # noqa: E402
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import StructuredTool, tool  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.prebuilt import InjectedState  # noqa: E402
from langgraph.types import Command, interrupt  # noqa: E402

CONFIG: Any = {"configurable": {"thread_id": "t"}}
PACKAGES = ("codemode-langchain", "langchain-quickjs")


class Model(GenericFakeChatModel):
    """Asks for one program; keeps what it was shown."""

    seen: list[str] = []  # noqa: RUF012 - a pydantic field, copied for each model

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.seen.extend(one.description for one in tools if one.name in ("codeMode", "eval"))
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.extend(str(one.content) for one in messages if one.type == "system")
        return super()._generate(messages, *args, **kwargs)


class Subject:
    """One of the two packages in an agent."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.model = Model(messages=iter([]), seen=[])

    def agent(self, tools: Sequence[Any], js: str, *after: Any, approve: Any = None) -> Any:
        if self.package == PACKAGES[0]:
            from codemode_langchain import CodeModeMiddleware

            name, args, middleware = "codeMode", {"js": js}, CodeModeMiddleware(approve=approve)
        else:
            from langchain_quickjs import CodeInterpreterMiddleware

            # Its programs are scripts whose last expression counts.
            name, args = "eval", {"code": f"await (async () => {{ {js} }})()"}
            middleware = CodeInterpreterMiddleware(ptc=[one.name for one in tools])
        call = {"name": name, "args": args, "id": "call", "type": "tool_call"}
        self.model.messages = iter([AIMessage("", tool_calls=[call]), AIMessage("done")])
        return create_agent(self.model, tools, middleware=[middleware, *after], checkpointer=InMemorySaver())

    def run(self, tools: Sequence[Any], js: str, *after: Any, approve: Any = None) -> Any:
        return self.agent(tools, js, *after, approve=approve).invoke({"messages": [HumanMessage("go")]}, CONFIG)


def said(output: Any) -> str:
    if "__interrupt__" in output:
        return f"{len(output['__interrupt__'])} interrupt(s)"
    return next(str(one.content) for one in output["messages"] if isinstance(one, ToolMessage))


done: list[str] = []


@tool
def refund(order: str) -> str:
    """Refund an order."""
    done.append(f"refund {order}")
    return "ok"


@tool
def count(text: str) -> int:
    """Count the characters."""
    done.append(f"count {text}")
    return len(text)


@tool
def ask(question: str) -> str:
    """Ask a person."""
    return str(interrupt(question))


def review_batched(subject: Subject) -> Any:
    """HumanInTheLoopMiddleware(interrupt_on={"refund": True}) in its default mode"""
    try:
        output = subject.run(
            [refund], "return await tools.refund({ order: 'a' })", HumanInTheLoopMiddleware({"refund": True})
        )
    except ValueError as error:
        return f"refused when the agent is built: {str(error)[:60]}..."
    return {"gave": said(output), "ran": done}


def review_per_call(subject: Subject) -> Any:
    """The same with interrupt_mode="per_call", listed after"""
    review = HumanInTheLoopMiddleware({"refund": True}, interrupt_mode="per_call")
    return {"gave": said(subject.run([refund], "return await tools.refund({ order: 'a' })", review)), "ran": done}


def interrupts(subject: Subject) -> Any:
    """interrupt() in two nested calls at once, after a call that is done; then both are answered"""
    both = "return await Promise.all(['a', 'b'].map((question) => tools.ask({ question })))"
    js = f"await tools.count({{ text: 'x' }}); {both}"
    agent = subject.agent([count, ask], js)
    output = agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    first, rounds = said(output), 0
    while "__interrupt__" in output and rounds < 5:
        output = agent.invoke(
            Command(resume={one.id: f"yes to {one.value}" for one in output["__interrupt__"]}), CONFIG
        )
        rounds += 1
    return {"first": first, "then": said(output)[:160], "count ran": f"{len(done)} time(s)"}


def caught(subject: Subject) -> Any:
    """Try { interrupting call } catch { another call }"""
    js = "try { await tools.ask({ question: 'a' }) } catch { await tools.refund({ order: 'caught' }) } return 'end'"
    return {"gave": said(subject.run([ask, refund], js))[:80], "ran": done}


class Watching(AgentMiddleware[Any, Any, Any]):
    """Notes every call it sees."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        done.append(f"saw {request.tool_call['name']}")
        return handler(request)


def middleware(subject: Subject) -> Any:
    """wrap_tool_call of middleware listed after"""
    subject.run([count], "return await tools.count({ text: 'x' })", Watching())
    return done


def signatures(subject: Subject) -> Any:
    """An argument injected from the state, in what the model reads"""

    @tool
    def lookup(key: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look something up."""
        return f"{key} {len(state['messages'])}"

    output = subject.run([lookup], "return await tools.lookup({ key: 'k' })")
    text = "\n".join(subject.model.seen)
    at = text.find("lookup(")
    return {"gave": said(output), "declared": " ".join(text[at : at + 160].split())}


def validation(subject: Subject) -> Any:
    """Wrong input for a tool with a dict schema, and for one with a model"""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    loose = StructuredTool(
        name="loose", description="d", args_schema=schema, func=lambda n=None: done.append(f"loose {n!r}") or "ran"
    )
    js = """
    const wrong = JSON.parse('"abc"'), out = [];
    try { out.push(await tools.loose({ n: wrong })) } catch (error) { out.push(error.message) }
    try { out.push(await tools.count({ text: [wrong].concat(1) })) } catch (error) { out.push(error.message) }
    return out;
    """
    return {"gave": said(subject.run([loose, count], js)), "ran": done}


def types(subject: Subject) -> Any:
    """What a tool's int is in the program"""
    return said(subject.run([count], "return typeof (await tools.count({ text: 'abc' }))"))


def leaving(subject: Subject) -> Any:
    """An endless program, cancelled after a second: how long until the process of the agent is gone"""
    agent = subject.agent([count], "await tools.count({ text: 'x' }); for (;;) {}")

    async def cancelled() -> str:
        try:
            async with asyncio.timeout(1):
                return said(await agent.ainvoke({"messages": [HumanMessage("go")]}, CONFIG))[:80]
        except TimeoutError:
            return "cancelled"

    began = time.time()
    return {"gave": asyncio.run(cancelled()), "loop was free after": f"{time.time() - began:.1f} s", "at": time.time()}


def crashing(subject: Subject) -> Any:
    """A program that allocates all it can: what becomes of the process of the agent"""
    return said(subject.run([count], "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))"))[:100]


POINTS: dict[str, Callable[[Subject], Any]] = {
    point.__name__: point
    for point in (
        *(review_batched, review_per_call, interrupts, caught, middleware),
        *(signatures, validation, types, leaving, crashing),
    )
}


def measured(package: str, name: str) -> str:
    try:
        ended = subprocess.run(
            [sys.executable, __file__, package, name], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired as error:
        return f"the process did not end within 30 s; it said {(error.stdout or b'').decode()[-200:]}"
    left = time.time()
    lines = ended.stdout.strip().splitlines()
    if ended.returncode != 0 or not lines:
        return f"exit {ended.returncode}: {(ended.stderr.strip().splitlines() or [''])[-1][:200]}"
    value = json.loads(lines[-1])
    if isinstance(value, dict) and "at" in value:
        value["left after"] = f"{left - value.pop('at'):.2f} s"
    return json.dumps(value)


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(POINTS[sys.argv[2]](Subject(sys.argv[1]))))
        return
    for name, point in POINTS.items():
        print(f"{name}: {point.__doc__}")
        for package in PACKAGES:
            print(f"  {package:20} {measured(package, name)}")


if __name__ == "__main__":
    main()
