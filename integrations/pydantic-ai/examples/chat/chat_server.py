"""A chat in a browser: `useChat` of the AI SDK against an agent whose programs ask before they refund.

``python chat_server.py FOLDER [MODEL]``: FOLDER is where npm has installed `ai@6`, `@ai-sdk/react@3`, `react@19`,
`react-dom@19` and `esbuild`. Without a model a script stands for one, and no key is needed. `make demo-chat` installs
and serves it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from codemode_pydantic_ai import CodeMode
from codemode_pydantic_ai.ui import PausedProgramsMixin
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

HERE = Path(__file__).parent
PROGRAM = """
const late = await tools.late_orders();
const done = await Promise.allSettled(late.map((one) => tools.refund(one)));
return done.map((one) => one.value ?? one.reason.message);
"""

LateOrders = Callable[[], Awaitable[list[dict[str, Any]]]]


class Chat(PausedProgramsMixin, VercelAIAdapter[Any, Any]):
    """The adapter, which knows of paused programs."""


async def late_orders() -> list[dict[str, Any]]:
    """The orders that are late, with what they cost."""
    return [{"order": "ada", "cents": 900}, {"order": "bob", "cents": 90_000}, {"order": "cy", "cents": 400}]


def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return f"{order} got {cents}"


async def scripted(messages: list[ModelMessage], _info: Any) -> AsyncIterator[Any]:
    """Stand for a model, which would write the program itself."""
    last: Any = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        yield {0: DeltaToolCall("codeMode", json.dumps({"js": PROGRAM}))}
    elif last.part_kind == "tool-return":
        yield f"Done: {'; '.join(last.content)}."


def support_agent(
    model: Any = None, late: LateOrders = late_orders, pay: Callable[..., str] = refund
) -> Agent[Any, Any]:
    """Return the agent behind the page."""
    tools = [Tool(late, name="late_orders"), Tool(pay, name="refund", requires_approval=True)]
    output: Any = [str, DeferredToolRequests]
    behind = model or FunctionModel(stream_function=scripted)
    return Agent(behind, tools=tools, output_type=output, capabilities=[CodeMode()])


def with_edits(results: DeferredToolResults | None, edits: Any) -> DeferredToolResults | None:
    """Put what somebody has edited into the approvals: the AI SDK's own answer is yes or no."""
    if results is None:
        return None
    edited = {
        key: ToolApproved(override_args=edits[key])
        for key, said in results.approvals.items()
        if said is True and isinstance(edits.get(key), dict)
    }
    return DeferredToolResults(approvals={**results.approvals, **edited})


def application(agent: Agent[Any, Any], bundle: Path) -> Starlette:
    """Return the page, its script and the endpoint that it talks to, for this machine alone."""

    async def chat(request: Request) -> Response:
        adapter = await Chat.from_request(request, agent=agent, sdk_version=6)
        given: Any = (await request.json()).get("edits")
        results = with_edits(adapter.deferred_tool_results, given if isinstance(given, dict) else {})
        return adapter.streaming_response(adapter.run_stream(deferred_tool_results=results))

    async def page(_request: Request) -> Response:
        return FileResponse(HERE / "page.html")

    async def script(_request: Request) -> Response:
        return FileResponse(bundle, media_type="text/javascript")

    routes = [Route("/", page), Route("/page.js", script), Route("/chat", chat, methods=["POST"])]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(routes=routes, middleware=[trusted])


def bundled(folder: Path, bundle: Path) -> Path:
    """Write the page's script with everything that it imports. Raises `CalledProcessError`, and `SystemExit`."""
    packages = folder / "node_modules"
    names = ("bin/esbuild", "esbuild.exe")
    esbuild = next((found for one in names for found in packages.glob(f"@esbuild/*/{one}")), None)
    if esbuild is None:
        raise SystemExit(f"the packages of the page are not in {folder}: `make demo-chat` installs them, and serves it")
    command = [esbuild, HERE / "page.jsx", "--bundle", "--format=esm", "--jsx=automatic", "--log-level=warning"]
    settings = ["--define:process.env.NODE_ENV='production'", f"--outfile={bundle}"]
    subprocess.run([*command, *settings], check=True, env={**os.environ, "NODE_PATH": str(packages)})
    return bundle


if __name__ == "__main__":
    import uvicorn

    if not sys.argv[1:]:
        raise SystemExit(
            "usage: python chat_server.py FOLDER [MODEL]; `make demo-chat` installs what it needs, and serves it"
        )
    installed = Path(sys.argv[1])
    chosen = sys.argv[2] if sys.argv[2:] else None
    served = application(support_agent(chosen), bundled(installed, installed / "page.js"))
    print("http://127.0.0.1:8080  (ask it anything; it looks for late orders)")
    uvicorn.run(served, host="127.0.0.1", port=8080, log_level="warning")
