"""User code that makes tools and runs programs, checked strictly. Never run."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, assert_type

from pydantic import BaseModel

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeTool,
    CodeModeToolError,
    PoolOptions,
    Tool,
    ToolCallContext,
    WorkerPool,
    create_code_mode_tool,
    failure_text,
    run_code_mode,
    run_code_mode_sync,
    set_max_workers,
    tool,
)
from codemode.errors import CodeModeSyntaxError
from codemode.types import Trace


class Order(BaseModel):
    customer: str
    cents: int = 0


async def stock(product: str) -> int:
    return {"bolt": 120}[product]


async def lines(order: str) -> AsyncIterator[Order]:
    yield Order(customer=order)


@tool
def refund(order: str, cents: int, context: ToolCallContext) -> str:
    context.aborted.is_set()
    return f"refunded {cents} for {order} in {context.tool_call_id}"


def placed(order: Order, context: ToolCallContext) -> str:
    return f"{order.customer}: {context.outer_tool_call_id}"


def is_large(order: dict[str, Any]) -> bool:
    return order["cents"] > 1000


@tool(name="pay_back", needs_approval=lambda order: order["cents"] > 1000, annotations={"destructiveHint": True})
async def pay_back(order: str, cents: int) -> str:
    return f"{order}: {cents}"


assert_type(refund, Tool)
assert_type(pay_back, Tool)

place = Tool(
    "place",
    execute=placed,
    description="Places an order.",
    input_schema=Order,
    output_schema={"type": "string"},
    needs_approval=is_large,
    input_examples=[{"customer": "ada"}],
    to_model_output=str,
)
short = Tool("short", execute=lambda: 1, needs_approval=lambda order, context: context.context == order)
doubled = Tool("doubled", execute=lambda number: number * 2, to_model_output=lambda output: [output])
renamed = Tool.from_function(stock, name="in_stock")
assert_type(renamed, Tool)

code_mode = create_code_mode_tool([stock, lines, refund, place], {"execution_policy": {"timeout_ms": 5000}})
assert_type(code_mode, CodeModeTool)
assert_type(create_code_mode_tool({"stock": stock, "refund": refund}), CodeModeTool)
assert_type(code_mode.name, str)
assert_type(code_mode.description, str)
assert_type(code_mode.input_schema, dict[str, Any])
assert_type(code_mode.to_model_output({"a": 1}, tool_call_id="call_1"), dict[str, Any])


def told(error: CodeModeError, js: str) -> str:
    assert_type(error.code, str)
    assert_type(error.details, dict[str, Any])
    if error.trace is not None:
        assert_type(error.trace, Trace)
        assert_type(error.trace.to_text(), str)
    begun = [call["name"] for call in error.calls if call["status"] != "fulfilled"]
    assert_type(begun, list[str])
    return failure_text(error, js) + ", ".join(begun)


async def run(js: str) -> Any:
    options = PoolOptions(max_workers=4, on_saturation="wait", wait_timeout_ms=1000)
    async with WorkerPool(options) as pool:
        tenant = pool.share("tenant", max_workers=2)
        assert_type(tenant, WorkerPool)
        try:
            await run_code_mode(js, [stock], call=CallContext(tool_call_id="call_1", context={"user": 1}), pool=tenant)
            return await code_mode.execute({"js": js}, call=CallContext(messages=[{"role": "user"}]))
        except (CodeModeSyntaxError, CodeModeToolError) as error:
            return told(error, js)


def run_sync(js: str) -> Any:
    set_max_workers(8)
    with WorkerPool({"max_workers": 4, "isolation": "required"}) as pool:
        if pool.isolation is not None:
            print(pool.isolation)
        code_mode.execute_sync(
            {"js": js}, call=CallContext(tool_call_id="call_1", messages=[{"role": "user"}], context={"user": 1})
        )
        return run_code_mode_sync(js, {"stock": stock}, options={"fetch_policy": False}, pool=pool)


# What must be refused. A check that no longer refuses it makes its comment superfluous, which is an error too.


def takes_three(order: Any, context: ToolCallContext, more: Any) -> bool:
    return True


run_code_mode_sync(1, [stock])  # pyright: ignore[reportArgumentType]
run_code_mode_sync("return 1", [stock], timeout_ms=5)  # pyright: ignore[reportCallIssue]
run_code_mode_sync("return 1", 5)  # pyright: ignore[reportArgumentType]
Tool("place")  # pyright: ignore[reportCallIssue]
Tool("place", execute=5)  # pyright: ignore[reportArgumentType]
Tool("place", execute=takes_three)  # pyright: ignore[reportArgumentType]
tool(needs_approval=takes_three)  # pyright: ignore[reportArgumentType]
PoolOptions(on_saturation="maybe")  # pyright: ignore[reportArgumentType]
PoolOptions(workers=4)  # pyright: ignore[reportCallIssue]
WorkerPool().share("tenant")  # pyright: ignore[reportCallIssue]
create_code_mode_tool([stock], pool={"max_workers": 4})  # pyright: ignore[reportArgumentType]
refund("a", 5)  # pyright: ignore[reportCallIssue]
code_mode.execute_sync({"js": "return 1"}, tool_id="call_1")  # pyright: ignore[reportCallIssue]
code_mode.execute(1)  # pyright: ignore[reportArgumentType, reportUnusedCoroutine]
code_mode.execute_sync("return 1", "call_1")  # pyright: ignore[reportArgumentType]
create_code_mode_tool([stock], store=5)  # pyright: ignore[reportArgumentType]
