"""Checks of what every framework plugin promises, for the plugin's own tests. Knows no framework and no test runner.

A plugin describes itself to the suite as a `PluginUnderTest`; each check in `CONTRACT` is a coroutine function that
takes one and raises `AssertionError` for a broken promise::

    @pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
    def test_contract(check): asyncio.run(check(MyPlugin()))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

_SECRET = "/srv/secret/path"  # noqa: S105 - stands for host text that no program may read
_WAIT_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class ContractTool:
    """A tool to give to the framework: an annotated function with a docstring, sync or async."""

    name: str
    function: Callable[..., Any]
    needs_approval: bool = False


@dataclass(frozen=True, kw_only=True)
class ContractAnswer:
    """A person's answer to one waiting call. ``input`` is the edited input, None to run what was shown."""

    approved: bool
    input: Mapping[str, Any] | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaitingCall:
    """An inner call that waits, as the framework's user sees it."""

    id: str
    tool_name: str
    input: Any


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The program ended. ``value`` is what the model was given, as plain JSON."""

    value: Any


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The program failed. ``text`` is what the model was told."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The run waits for people. ``state`` is JSON text: all that the framework's user must keep to go on."""

    calls: Sequence[WaitingCall]
    state: str


Outcome: TypeAlias = Finished | Failed | Paused


class PluginUnderTest(Protocol):
    """One plugin in its framework. Every method makes a new agent over these tools, with a scripted model."""

    async def shown(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        """Return what the model is offered: descriptions by tool name."""
        ...

    async def run(self, tools: Sequence[ContractTool], js: str) -> Outcome:
        """Let the model call codeMode once with this program."""
        ...

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        """Go on with a paused run. Raises whatever the framework raises when the answers are refused."""
        ...


Check: TypeAlias = Callable[[PluginUnderTest], Awaitable[None]]

_REFUNDS = """
const stock = await tools.stock({ product: "nut" });
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return [stock, ...refunds.map((one) => one.status)];
"""


class _Desk:
    """A tool that runs at once and one that needs approval; ``did`` is what has happened."""

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []
        self.tools = (
            ContractTool(name="stock", function=self.stock),
            ContractTool(name="refund", function=self.refund, needs_approval=True),
        )

    def stock(self, product: str) -> int:
        """How many of a product there are."""
        self.did.append(("stock", product))
        return 7

    def refund(self, order: str, cents: int = 500) -> str:
        """Give the money for an order back."""
        self.did.append(("refund", (order, cents)))
        return f"refunded {order}"

    async def paused(self, plugin: PluginUnderTest, js: str = _REFUNDS) -> Paused:
        outcome = await plugin.run(self.tools, js)
        assert isinstance(outcome, Paused), outcome
        return outcome


async def shows_one_tool(plugin: PluginUnderTest) -> None:
    """The model is offered codeMode alone, and its description declares the tools."""
    shown = await plugin.shown(_Desk().tools)
    assert list(shown) == ["codeMode"]
    assert "How many of a product there are." in shown["codeMode"]
    assert "Promise<number>" in shown["codeMode"]


async def gives_the_value(plugin: PluginUnderTest) -> None:
    """What a program returns reaches the model as JSON."""
    js = "return { stock: await tools.stock({ product: 'nut' }), none: null, list: [1.5, 'ü', true] };"
    outcome = await plugin.run(_Desk().tools, js)
    assert outcome == Finished(value={"stock": 7, "none": None, "list": [1.5, "ü", True]}), outcome


async def calls_any_name(plugin: PluginUnderTest) -> None:
    """A tool can be called whose name the language itself reads of every object."""
    names = ("constructor", "prototype", "toJSON", "toString", "valueOf", "toLocaleString")

    def named(name: str) -> Callable[[int], str]:
        def tool(n: int) -> str:
            """Say which tool this is."""
            return f"{name} {n}"

        return tool

    tools = [ContractTool(name=name, function=named(name)) for name in names]
    listed = ", ".join(f"await tools.{name}({{ n: {at} }})" for at, name in enumerate(names))
    outcome = await plugin.run(tools, f"return [{listed}, String(tools)];")
    assert outcome == Finished(value=[*(f"{name} {at}" for at, name in enumerate(names)), "[tool]"]), outcome


async def keeps_integers(plugin: PluginUnderTest) -> None:
    """An integer beyond 2^53 reaches tool and model as it is."""
    order = 1180591620717411303

    def find(id: int) -> dict[str, int]:  # noqa: A002 - as such tools have it
        """Find an order."""
        return {"id": id, "next": id + 1}

    tools = [ContractTool(name="find", function=find)]
    outcome = await plugin.run(
        tools, f"const found = await tools.find({{ id: {order}n }}); return [found, typeof found.id];"
    )
    assert outcome == Finished(value=[{"id": order, "next": order + 1}, "bigint"]), outcome


async def overlaps_calls(plugin: PluginUnderTest) -> None:
    """Calls under Promise.all are in flight together."""
    meeting = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Wait for the other one."""
        await asyncio.wait_for(meeting.wait(), _WAIT_SECONDS)
        return name

    tools = [ContractTool(name="meet", function=meet)]
    outcome = await plugin.run(tools, "return await Promise.all(['a', 'b'].map((name) => tools.meet({ name })));")
    assert outcome == Finished(value=["a", "b"]), outcome


async def validates_inputs(plugin: PluginUnderTest) -> None:
    """A call with wrong input does not run, and the program can catch it."""
    desk = _Desk()
    wrong = "const product = JSON.parse('{}');"
    js = f"{wrong} try {{ await tools.stock({{ product }}); return 'ran'; }} catch {{ return 'refused'; }}"
    assert await plugin.run(desk.tools, js) == Finished(value="refused")
    assert desk.did == []


async def tells_what_was_done(plugin: PluginUnderTest) -> None:
    """The model of a failed program is told why, and which calls are done."""
    js = "await tools.stock({ product: 'nut' }); throw new TypeError('no luck');"
    outcome = await plugin.run(_Desk().tools, js)
    assert isinstance(outcome, Failed), outcome
    assert "no luck" in outcome.text
    assert "stock" in outcome.text


async def hides_host_errors(plugin: PluginUnderTest) -> None:
    """What a tool raises by accident is neither for the program nor for its result."""

    def broken() -> None:
        """Fail."""
        raise ValueError(_SECRET)

    tools = [ContractTool(name="broken", function=broken)]
    js = "try { await tools.broken(); } catch (error) { return String(error) + JSON.stringify(error); }"
    outcome = await plugin.run(tools, js)
    assert isinstance(outcome, Finished), outcome
    assert _SECRET not in str(outcome.value)


async def shows_all_that_waits(plugin: PluginUnderTest) -> None:
    """A pause shows every inner call that waits, with its validated input, and an id of its own."""
    desk = _Desk()
    paused = await desk.paused(plugin)
    assert [call.tool_name for call in paused.calls] == ["refund", "refund"]
    assert [call.input for call in paused.calls] == [{"order": order, "cents": 500} for order in "ab"]
    assert len({call.id for call in paused.calls}) == 2
    assert desk.did == [("stock", "nut")]
    json.loads(paused.state)


async def edits_and_denies(plugin: PluginUnderTest) -> None:
    """An edited call runs as edited, a denied one never, a finished one not again."""
    desk = _Desk()
    paused = await desk.paused(plugin)
    outcome = await plugin.resume(desk.tools, paused.state, _edit_and_deny(paused))
    assert outcome == Finished(value=[7, "fulfilled", "rejected"]), outcome
    assert desk.did == [("stock", "nut"), ("refund", ("a", 300))]


async def repeats_without_running(plugin: PluginUnderTest) -> None:
    """The same answers to the same pause give the same outcome, and nothing runs."""
    desk = _Desk()
    paused = await desk.paused(plugin)
    first = await plugin.resume(desk.tools, paused.state, _edit_and_deny(paused))
    did = list(desk.did)
    assert await plugin.resume(desk.tools, paused.state, _edit_and_deny(paused)) == first
    assert desk.did == did


async def refuses_other_answers(plugin: PluginUnderTest) -> None:
    """Other answers to a pause that was answered are refused: they raise or fail, and nothing runs."""
    desk = _Desk()
    paused = await desk.paused(plugin)
    await plugin.resume(desk.tools, paused.state, _edit_and_deny(paused))
    did = list(desk.did)
    everything = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    try:
        outcome = await plugin.resume(desk.tools, paused.state, everything)
    except Exception:  # noqa: BLE001 - each framework refuses in its own words
        outcome = Failed(text="refused")
    assert isinstance(outcome, Failed), outcome
    assert desk.did == did


async def cannot_be_caught(plugin: PluginUnderTest) -> None:
    """No try, catch or finally of a program sees a pause."""
    desk = _Desk()
    js = """
    try { await tools.refund({ order: "a" }); }
    catch { await tools.stock({ product: "caught" }); }
    finally { await tools.stock({ product: "finally" }); }
    """
    paused = await desk.paused(plugin, js)
    assert len(paused.calls) == 1
    assert desk.did == []


async def pauses_again(plugin: PluginUnderTest) -> None:
    """A program that goes on may pause again; what was approved does not run again."""
    desk = _Desk()
    js = "await tools.refund({ order: 'a' }); await tools.refund({ order: 'b' }); return 'both';"
    outcome: Outcome = await desk.paused(plugin, js)
    for _ in range(2):
        assert isinstance(outcome, Paused), outcome
        answers = {call.id: ContractAnswer(approved=True) for call in outcome.calls}
        outcome = await plugin.resume(desk.tools, outcome.state, answers)
    assert outcome == Finished(value="both"), outcome
    assert desk.did == [("refund", ("a", 500)), ("refund", ("b", 500))]


def _edit_and_deny(paused: Paused) -> dict[str, ContractAnswer]:
    first, second = paused.calls
    edited = ContractAnswer(approved=True, input={"order": "a", "cents": 300})
    return {first.id: edited, second.id: ContractAnswer(approved=False, reason="not this one")}


CONTRACT: tuple[Check, ...] = (
    shows_one_tool,
    gives_the_value,
    calls_any_name,
    keeps_integers,
    overlaps_calls,
    validates_inputs,
    tells_what_was_done,
    hides_host_errors,
    shows_all_that_waits,
    edits_and_denies,
    repeats_without_running,
    refuses_other_answers,
    cannot_be_caught,
    pauses_again,
)
"""The checks, in the order in which a new plugin will want to pass them."""
