"""Checks of what every framework plugin promises, for the plugin's own tests. Knows no framework and no test runner.

A plugin describes itself to the suite as a `PluginUnderTest` of eight methods. Each check is a coroutine function
that takes one and raises `AssertionError` for a broken promise, which its docstring says. Programs are written for
codeMode, as ``await tools.name(input)``: the plugin's `Face` says what a model sends in their place. What a framework
does not have is left out by name, or by the groups ``STATE``, ``SELECTION`` and ``PAUSES``::

    ROWS = without(runs_sequential_tools_alone, *SELECTION)

    @pytest.mark.parametrize(("face", "check"), ROWS, ids=contract_id)
    def test_contract(face, check): asyncio.run(check(MyPlugin(face)))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .call_contract import CALLS, asks_for_agents_in_tools, does_not_count_slow_tools, runs_sequential_tools_alone
from .code_call_contract import CODE_CALL_ALONE
from .content_contract import CONTENT
from .faces import CODE_CALL, CODE_MODE, EXEC_WAIT, Face
from .pause_contract import PAUSES, answers_some_first
from .plugin_under_test import (
    SECRET,
    Check,
    ContractAnswer,
    ContractTool,
    Desk,
    Failed,
    Finished,
    Hear,
    Outcome,
    Paused,
    PluginUnderTest,
    WaitingCall,
    run,
)
from .selection_contract import SELECTION, keeps_tools
from .state_contract import STATE

__all__ = [
    "CODE_CALL",
    "CODE_MODE",
    "CONTRACTS",
    "EXEC_WAIT",
    "EXEC_WAIT_CONTRACTS",
    "PAUSES",
    "SELECTION",
    "STATE",
    "Check",
    "ContractAnswer",
    "ContractTool",
    "Face",
    "Failed",
    "Finished",
    "Hear",
    "Outcome",
    "Paused",
    "PluginUnderTest",
    "WaitingCall",
    "answers_some_first",
    "asks_for_agents_in_tools",
    "contract_id",
    "runs_sequential_tools_alone",
    "without",
]

_WAIT_SECONDS = 20.0
_MODEL_CHARACTERS = 20_000


async def shows_one_tool(plugin: PluginUnderTest) -> None:
    """The model is offered codeMode alone, and its description declares the tools."""
    shown = await plugin.shown(Desk().tools)
    assert list(shown) == ["codeMode"]
    assert "How many of a product there are." in shown["codeMode"]
    assert "Promise<number>" in shown["codeMode"]


async def has_an_object_of_tools(plugin: PluginUnderTest) -> None:
    """What the tools hang on says what it is, though tools have the names that the language reads of it."""
    tools = [ContractTool(name="toString", function=Desk().stock)]
    assert await run(plugin, tools, "return String(tools);") == Finished(value="[tool]")


async def shows_exec_and_wait(plugin: PluginUnderTest) -> None:
    """The model is offered exec and wait alone, and what it reads of exec tells of the tools."""
    shown = await plugin.shown(Desk().tools)
    assert sorted(shown) == ["exec", "wait"]
    assert "How many of a product there are." in shown["exec"]


async def gives_the_value(plugin: PluginUnderTest) -> None:
    """What a program returns reaches the model as JSON."""
    js = "return { stock: await tools.stock({ product: 'nut' }), none: null, list: [1.5, 'ü', true] };"
    outcome = await run(plugin, Desk().tools, js)
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
    outcome = await run(plugin, tools, f"return [{listed}];")
    assert outcome == Finished(value=[f"{name} {at}" for at, name in enumerate(names)]), outcome


async def keeps_integers(plugin: PluginUnderTest) -> None:
    """An integer beyond 2^53 reaches tool and model as it is."""
    order = 1180591620717411303

    def find(id: int) -> dict[str, int]:  # noqa: A002 - as such tools have it
        """Find an order."""
        return {"id": id, "next": id + 1}

    tools = [ContractTool(name="find", function=find)]
    outcome = await run(
        plugin, tools, f"const found = await tools.find({{ id: {order}n }}); return [found, typeof found.id];"
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
    outcome = await run(plugin, tools, "return await Promise.all(['a', 'b'].map((name) => tools.meet({ name })));")
    assert outcome == Finished(value=["a", "b"]), outcome


async def validates_inputs(plugin: PluginUnderTest) -> None:
    """A call with wrong input does not run, and the program can catch it."""
    desk = Desk()
    wrong = "const product = JSON.parse('{}');"
    js = f"{wrong} try {{ await tools.stock({{ product }}); return 'ran'; }} catch {{ return 'refused'; }}"
    assert await run(plugin, desk.tools, js) == Finished(value="refused")
    assert desk.did == []


async def tells_what_was_done(plugin: PluginUnderTest) -> None:
    """The model of a failed program is told why; that of codeMode also which calls are done."""
    js = "await tools.stock({ product: 'nut' }); throw new TypeError('no luck');"
    outcome = await run(plugin, Desk().tools, js)
    assert isinstance(outcome, Failed), outcome
    assert "no luck" in outcome.text
    assert "stock" in outcome.text or not plugin.face.tells_what_was_done


async def tells_what_was_printed(plugin: PluginUnderTest) -> None:
    """The model of a failed program reads what it had printed."""
    outcome = await run(plugin, Desk().tools, "console.log('half', 'way'); throw new TypeError('no luck');")
    assert isinstance(outcome, Failed), outcome
    assert "half way" in outcome.text, outcome


async def shows_what_was_printed(plugin: PluginUnderTest) -> None:
    """The model of a program that returns nothing reads what it printed, and what may be missing."""
    js = "async function main() { console.log('half', 'way'); } main();"
    outcome = await run(plugin, Desk().tools, js)
    assert isinstance(outcome, Finished), outcome
    assert "half way" in str(outcome.value), outcome
    assert "return await main();" in str(outcome.value), outcome


async def tells_of_large_results(plugin: PluginUnderTest) -> None:
    """A result that would fill the model's context is told of: its size, its shape, its beginning."""
    outcome = await run(plugin, Desk().tools, "return Array.from({ length: 500 }, (_, n) => n + 'x'.repeat(90));")
    assert isinstance(outcome, Finished), outcome
    assert isinstance(outcome.value, str), outcome
    assert len(outcome.value) <= _MODEL_CHARACTERS, outcome
    assert "an array of 500 items" in outcome.value, outcome
    assert "string[]" in outcome.value, outcome
    assert '["0xxx' in outcome.value, outcome


async def hides_host_errors(plugin: PluginUnderTest) -> None:
    """What a tool raises by accident is neither for the program nor for its result."""

    def broken() -> None:
        """Fail."""
        raise ValueError(SECRET)

    tools = [ContractTool(name="broken", function=broken)]
    js = "try { await tools.broken(); } catch (error) { return String(error) + JSON.stringify(error); }"
    outcome = await run(plugin, tools, js)
    assert isinstance(outcome, Finished), outcome
    assert SECRET not in str(outcome.value)


_CODE_MODE_ALONE: tuple[Check, ...] = (shows_one_tool, has_an_object_of_tools, shows_what_was_printed)
_EVERY_FACE: tuple[Check, ...] = (
    gives_the_value,
    calls_any_name,
    keeps_integers,
    overlaps_calls,
    validates_inputs,
    tells_what_was_done,
    tells_what_was_printed,
    tells_of_large_results,
    hides_host_errors,
    *PAUSES,
    *CALLS,
)

CONTRACTS: tuple[tuple[Face, Check], ...] = (
    *((CODE_MODE, check) for check in (*_CODE_MODE_ALONE, *_EVERY_FACE, *CONTENT, *STATE, *SELECTION)),
    *((CODE_CALL, check) for check in (*CODE_CALL_ALONE, *_EVERY_FACE, keeps_tools)),
    *((face, does_not_count_slow_tools) for face in (CODE_MODE, CODE_CALL)),
)
"""Each face with each of its checks, in the order in which a new plugin will want to pass them."""

EXEC_WAIT_CONTRACTS: tuple[tuple[Face, Check], ...] = tuple(
    (EXEC_WAIT, check) for check in (shows_exec_and_wait, *_EVERY_FACE, *CONTENT, *STATE) if check is not calls_any_name
)
"""The same for exec and wait, whose programs call by its id a tool with a name that the language reads of objects."""


def without(*checks: Check | tuple[Face, Check]) -> tuple[tuple[Face, Check], ...]:
    """Return all that there are, for every face, without the checks of what a framework, or one face, does not have."""
    return tuple(one for one in (*CONTRACTS, *EXEC_WAIT_CONTRACTS) if not {one, one[1]}.intersection(checks))


def contract_id(value: Any) -> str:
    """Return what a test of a face, or of a check, is called."""
    return value.__name__ if callable(value) else value.name
