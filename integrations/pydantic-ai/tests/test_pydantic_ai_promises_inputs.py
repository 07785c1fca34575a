"""Inputs that are easily shown as something else than what runs: of one name, read once, changed on the way."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from codemode_pydantic_ai import CodeMode
from gated import KINDS, Gate, within
from pydantic import AfterValidator, BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolApproved
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from suite import each_row, full_only
from typing_extensions import TypedDict


def shown_and_run(agent: Agent[Any, Any], decision: Any = True) -> tuple[Any, Any]:
    """What a person was shown, and what the run came to once that was approved."""
    paused = within(agent.run("go"))
    assert isinstance(paused.output, DeferredToolRequests)
    (call,) = paused.output.approvals
    results = DeferredToolResults(approvals={call.tool_call_id: decision})
    return call.args, within(agent.run(message_history=paused.all_messages(), deferred_tool_results=results)).output


def agent_of(script: Script, tool: Tool[Any], *, wraps: str = "", capabilities: Any = ()) -> Agent[Any, Any]:
    made: Any = FunctionToolset([tool])
    if wraps:
        made = made.prefixed(wraps).filtered(lambda _ctx, _definition: True)
    return Agent(
        script.model, output_type=[str, DeferredToolRequests], toolsets=[made], capabilities=[CodeMode(), *capabilities]
    )


@each_row("wraps", ["", *full_only("p")])
@each_row(
    "given", ["{ a: { x: 1 } }", "{ known: { x: 1 } }", "{ known: { known: 1, x: 2 } }", "{ x: { known: { x: 1 } } }"]
)
@each_row("is_open", [True, False])
def test_an_input_of_one_name_keeps_that_name(given: str, wraps: str, *, is_open: bool) -> None:
    ran: list[Any] = []

    def gated(**given: Any) -> None:
        ran.append(given)

    properties: Any = {"known": {}} if is_open else {"known": {}, "x": {}}
    schema = {"type": "object", "properties": properties, "additionalProperties": True}
    tool: Any = Tool[Any].from_schema(gated, "gated", "", schema) if is_open else Tool(gated)
    tool.requires_approval = True
    name = f"{wraps}_gated" if wraps else "gated"
    script = Script(program(f"const given = {given}; await tools.{name}(given); return given"), "done")
    shown, _ = shown_and_run(agent_of(script, tool, wraps=wraps))
    assert [shown] == ran == [script.returned()]


class Order(BaseModel):
    order: Any
    cents: int = 500


@dataclasses.dataclass
class Bill:
    order: Any


class Slip(TypedDict):
    order: Any


def of_model(order: Order) -> Any:
    return {"order": order.order, "cents": order.cents}


def of_dataclass(bill: Bill) -> Any:
    return {"order": bill.order}


def of_typed_dict(order: Slip) -> Any:
    return order


@each_row("wraps", ["", *full_only("p")])
@each_row("function", [of_model, of_dataclass, of_typed_dict])
@each_row("order", [7, {"order": 7}, {"cents": 7}, {"order": {"order": 7}}])
def test_a_model_as_the_only_parameter_is_shown_as_the_input(function: Any, order: Any, wraps: str) -> None:
    name = f"{wraps}_gated" if wraps else "gated"
    tool = Tool[Any](function, name="gated", requires_approval=True)
    script = Script(program(f"return await tools.{name}({{ order: {order!r} }})"), "done")
    shown, _ = shown_and_run(agent_of(script, tool, wraps=wraps))
    assert shown == script.returned()
    assert shown["order"] == order


class Parts(BaseModel):
    numbers: Iterable[int]


@dataclasses.dataclass(frozen=True)
class Frozen:
    numbers: Iterable[int]


class Pair(NamedTuple):
    numbers: Iterable[int]


def halves(values: list[int]) -> Iterator[int]:
    return (value // 2 for value in values)


def doubled(values: list[int]) -> Iterator[int]:
    return map(lambda value: value * 2, values)  # noqa: C417 - an iterator of another kind


def read(value: Any) -> list[int]:
    return list(value.numbers if hasattr(value, "numbers") else value[0] if isinstance(value, list | deque) else value)


def read_plainly(value: Iterable[int], note: str = "") -> list[int]:
    return read(value)


def read_generator(value: Generator[int, None, None]) -> list[int]:
    return [next(value), *value]


def read_halves(value: Annotated[list[int], AfterValidator(halves)], note: str = "") -> list[int]:
    return read(value)


def read_doubled(value: Annotated[list[int], AfterValidator(doubled)]) -> list[int]:
    return read(value)


def read_model(value: Parts, note: str = "") -> list[int]:
    return read(value)


def read_frozen(value: Frozen, note: str = "") -> list[int]:
    return read(value)


def read_tuple(value: Pair, note: str = "") -> list[int]:
    return read(value)


def read_list(value: list[Iterable[int]]) -> list[int]:
    return read(value)


def read_deque(value: deque[Iterable[int]]) -> list[int]:
    return read(value)


def read_dict(value: dict[str, Iterable[int]]) -> list[int]:
    return read(value["numbers"])


NUMBERS = [2, 4, 6]
ITERATORS: Any = [
    (read_plainly, NUMBERS),
    (read_generator, NUMBERS),
    (read_halves, NUMBERS),
    (read_doubled, NUMBERS),
    (read_model, {"numbers": NUMBERS}),
    (read_frozen, {"numbers": NUMBERS}),
    (read_tuple, [NUMBERS]),
    (read_list, [NUMBERS]),
    (read_deque, [NUMBERS]),
    (read_dict, {"numbers": NUMBERS}),
]


@each_row("kind", KINDS[:2])
@each_row("function, value", ITERATORS)
def test_to_show_an_iterator_takes_nothing_from_it(kind: str, function: Any, value: Any) -> None:
    gate = Gate(kind, function, {"value": value})
    paused, history = gate.paused()
    assert gate.answered(paused, history).output == "done"
    halved, twice = [1, 2, 3], [4, 8, 12]
    expected = {read_halves: halved, read_doubled: twice}.get(function, NUMBERS)
    assert gate.script.returned() == expected
    assert str(expected) in str(paused.args)


def test_an_iterator_of_the_wrong_things_is_told_to_the_program() -> None:
    tool = Tool[Any](read_plainly, requires_approval=True)
    caught = (
        "const value = ['x']; try { return await tools.read_plainly({ value }) } catch (error) { return error.message }"
    )
    script = Script(program(caught), "done")
    assert within(agent_of(script, tool).run("go")).output == "done"
    assert "Invalid input" in script.returned()


class Changes(AbstractCapability[Any]):
    """A hook around the execution of tools, which comes after their validation."""

    def __init__(self, *, in_place: bool = False) -> None:
        self.in_place = in_place

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        if "cents" not in args:
            return args
        if self.in_place:
            args["cents"] *= 100
            return args
        return {**args, "cents": args["cents"] * 100}


class Wraps(Changes):
    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        return args

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        changed = await super().before_tool_execute(ctx, call=call, tool_def=tool_def, args=args)
        return await handler(changed)


@each_row("gate", ["requires_approval", "toolset"])
@each_row("hook", [Changes(), Changes(in_place=True), Wraps(), Wraps(in_place=True)])
def test_what_a_hook_changes_after_it_was_shown_does_not_run(hook: Any, gate: str) -> None:
    ran: list[Any] = []

    def refund(cents: int) -> None:
        ran.append(cents)

    def ungated(cents: int) -> int:
        return cents

    script = Script(
        program(
            "const first = await tools.ungated({ cents: 6 });"
            "return [first, await tools.refund({ cents: 6 }).catch((error) => error.message)]"
        ),
        "done",
    )
    made: Any = {"tools": [Tool(refund, requires_approval=gate == "requires_approval")]}
    if gate == "toolset":
        made = {"toolsets": [FunctionToolset([refund]).approval_required()]}
    made["tools"] = [*made.get("tools", []), ungated]
    agent = Agent(script.model, output_type=[str, DeferredToolRequests], capabilities=[CodeMode(), hook], **made)
    shown, output = shown_and_run(agent)
    assert (shown, output, ran) == ({"cents": 6}, "done", [])
    first, message = script.returned()
    assert first == 600  # a call that nobody was asked about is the hooks' own affair
    assert "after_tool_validate" in message


def test_a_handler_may_hide_things_from_whom_it_asks() -> None:
    ran: list[Any] = []

    def refund(order: str, note: dict[str, str] = {"token": "secret"}) -> None:  # noqa: B006 - never changed
        ran.append((order, note))

    def handler(_ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        for call in requests.approvals:
            arguments: Any = call.args
            arguments["note"]["token"] = "***"
            arguments["order"] = "***"
        return requests.build_results(approve_all=True)

    script = Script(program("await tools.refund({ order: 'a' }); return 1"), "done")
    tool = Tool[Any](refund, requires_approval=True)
    agent = agent_of(script, tool, capabilities=[HandleDeferredToolCalls(handler)])
    assert within(agent.run("go")).output == "done"
    assert ran == [("a", {"token": "secret"})]


def test_an_edit_may_hold_what_a_tool_takes() -> None:
    gate = Gate("requires_approval", of_model, {"order": "a"})
    call, history = gate.paused()
    edited = {"order": Order(order="b", cents=7), "cents": 7}
    assert gate.answered(call, history, ToolApproved(override_args=edited)).output == "done"
    assert gate.script.returned() == {"order": {"order": "b", "cents": 7}, "cents": 7}
