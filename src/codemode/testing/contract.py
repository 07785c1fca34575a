"""Checks of what every framework plugin promises, for the plugin's own tests."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from .call_contract import (
    CALLS,
    CODE_CALL_ALONE,
    asks_approvals_for_nested_agents,
    excludes_tool_time_from_timeout,
    runs_sequential_tools_alone,
)
from .pause_contract import PAUSES, accepts_partial_answers
from .plugin_under_test import (
    CODE_CALL,
    CODE_MODE,
    EXEC_WAIT,
    SECRET,
    Check,
    ContractAnswer,
    ContractTool,
    Failed,
    Finished,
    Hear,
    Outcome,
    Paused,
    PluginUnderTest,
    RecordingTools,
    SurfaceUnderTest,
    WaitingCall,
    resume_run,
    run_program,
)

_PICTURE = b"\x89PNG" + bytes(range(200))


class _ImageTools:
    """A tool that gives a picture, and one that is given it; ``seen`` are its bytes."""

    def __init__(self, plugin: PluginUnderTest, *, gated: bool = False) -> None:
        self.seen: list[bytes] = []

        def take_picture() -> Any:
            """Take a picture."""
            return [plugin.create_content_part(_PICTURE, "image/png")]

        def measure_picture(image: Any, label: str) -> int:
            """Say how large a picture is."""
            self.seen.append(plugin.get_content_bytes(image))
            return len(self.seen[-1]) + len(label)

        self.tools = (
            ContractTool(name="shot", function=take_picture),
            ContractTool(name="size", function=measure_picture, needs_approval=gated),
        )

    def assert_image_reached_model(self, outcome: Outcome) -> None:
        """Check that the model has the picture, and its text no bytes of it."""
        assert isinstance(outcome, Finished), outcome
        assert outcome.value["size"] == len(_PICTURE) + 1
        assert outcome.value["facts"] == [True, "image", "image/png", len(_PICTURE)]
        assert list(outcome.content) == [("image/png", _PICTURE)]
        assert b64encode(_PICTURE).decode()[:24] not in json.dumps(outcome.value)
        assert self.seen == [_PICTURE]


_IMAGE_PROGRAM = """
const [image] = await tools.shot({});
const size = await tools.size({ image, label: "x" });
return { size, facts: [Object.isFrozen(image), image.kind, image.mimeType, image.bytes], image };
"""
_FORGED_IMAGE_PROGRAM = """
const image = { ...(await tools.shot({}))[0], label: "x" };
try { content(image); return "shown"; } catch { return "refused"; }
"""


async def passes_media_between_tools(plugin: PluginUnderTest) -> None:
    """A picture goes from tool to tool as the framework's object, and reaches the model as real content."""
    gallery = _ImageTools(plugin)
    gallery.assert_image_reached_model(await run_program(plugin, gallery.tools, _IMAGE_PROGRAM))


async def keeps_media_over_a_pause(plugin: PluginUnderTest) -> None:
    """A person is shown no bytes, and what was approved gets the same picture."""
    gallery = _ImageTools(plugin, gated=True)
    paused = await run_program(plugin, gallery.tools, _IMAGE_PROGRAM)
    assert isinstance(paused, Paused), paused
    (call,) = paused.calls
    assert call.input["image"]["bytes"] == len(_PICTURE)
    assert b64encode(_PICTURE).decode()[:24] not in json.dumps(call.input)
    gallery.assert_image_reached_model(
        await resume_run(plugin, gallery.tools, paused.state, {call.id: ContractAnswer(approved=True)})
    )


async def refuses_forged_media(plugin: PluginUnderTest) -> None:
    """Data that only resembles a handle stays data."""
    assert await run_program(plugin, _ImageTools(plugin).tools, _FORGED_IMAGE_PROGRAM) == Finished(value="refused")


CONTENT: tuple[Check, ...] = (passes_media_between_tools, keeps_media_over_a_pause, refuses_forged_media)


_COUNT_PROGRAM = "await state.set('n', (await state.get('n') ?? 0) + 1); "
_GET_PROGRAM = "return await state.get('n');"


async def _expect_value_and_get_conversation(value: Any, work: Awaitable[Outcome]) -> str:
    outcome = await work
    assert outcome == Finished(value=value), outcome
    assert isinstance(outcome, Finished)
    return outcome.conversation


async def offers_state_only_if_described(plugin: PluginUnderTest) -> None:
    """Where the model reads of state, programs find their stored values, under any name; others have no state."""
    mentions_state = any(
        "state.get(key)" in text for text in (await plugin.describe_tools(RecordingTools().tools)).values()
    )
    js = "await state.set('__proto__', { n: 1 }); return [await state.get('__proto__'), await state.keys()];"
    outcome = await run_program(plugin, RecordingTools().tools, js if mentions_state else "return typeof state;")
    assert outcome == Finished(value=[{"n": 1}, ["__proto__"]] if mentions_state else "undefined"), outcome


async def keeps_state_for_the_conversation(plugin: PluginUnderTest) -> None:
    """A later program of the conversation reads what an earlier one wrote; another conversation does not."""
    recorder = RecordingTools()
    first = await _expect_value_and_get_conversation(
        1, run_program(plugin, recorder.tools, _COUNT_PROGRAM + _GET_PROGRAM)
    )
    await _expect_value_and_get_conversation([], run_program(plugin, recorder.tools, "return await state.keys();"))
    second = await _expect_value_and_get_conversation(
        2, run_program(plugin, recorder.tools, _COUNT_PROGRAM + _GET_PROGRAM, after=first)
    )
    await _expect_value_and_get_conversation(2, run_program(plugin, recorder.tools, _GET_PROGRAM, after=second))


async def keeps_the_state_of_a_failed_program(plugin: PluginUnderTest) -> None:
    """A program's writes persist even if it fails later."""
    recorder = RecordingTools()
    failed = await run_program(plugin, recorder.tools, _COUNT_PROGRAM + "throw new Error('later');")
    assert isinstance(failed, Failed), failed
    await _expect_value_and_get_conversation(
        1, run_program(plugin, recorder.tools, _GET_PROGRAM, after=failed.conversation)
    )


async def writes_state_once_over_a_pause(plugin: PluginUnderTest) -> None:
    """A program that resumes after a pause has written once, and reads the same values as before."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(
        plugin, f"{_COUNT_PROGRAM} await tools.refund({{ order: 'a' }}); {_GET_PROGRAM}"
    )
    answers = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    first = await _expect_value_and_get_conversation(1, resume_run(plugin, recorder.tools, paused.state, answers))
    await _expect_value_and_get_conversation(1, run_program(plugin, recorder.tools, _GET_PROGRAM, after=first))
    assert recorder.calls == [("refund", ("a", 500))]


async def stores_large_results_in_state(plugin: PluginUnderTest) -> None:
    """The next program finds the whole of an oversized result, under the key that the model reads."""
    tools = RecordingTools().tools
    summary = await run_program(plugin, tools, "return Array.from({ length: 500 }, (_, n) => n + 'x'.repeat(90));")
    assert isinstance(summary, Finished), summary
    assert 'state.get("result:1")' in summary.value, summary
    js = 'const all = await state.get("result:1"); return [all.length, all[499].slice(0, 4)];'
    await _expect_value_and_get_conversation([500, "499x"], run_program(plugin, tools, js, after=summary.conversation))


STATE: tuple[Check, ...] = (
    offers_state_only_if_described,
    keeps_state_for_the_conversation,
    keeps_the_state_of_a_failed_program,
    writes_state_once_over_a_pause,
    stores_large_results_in_state,
)


_NAMES = ("stock", "refund", "close")


class _RecordingShopTools:
    """Three tools that need no approval; ``did`` lists their calls."""

    def __init__(self, *, gated: bool = False) -> None:
        self.did: list[str] = []
        self.tools = [
            ContractTool(name=name, function=self._create_function(name), needs_approval=gated and name == "refund")
            for name in _NAMES
        ]

    def _create_function(self, name: str) -> Any:
        def tool(n: int) -> str:
            """Do as the name says."""
            self.did.append(name)
            return f"{name} {n}"

        return tool


async def selects_program_and_direct_tools(plugin: PluginUnderTest) -> None:
    """By ``tools`` and ``keep`` each tool is in programs, or called directly, or both; none vanishes."""
    for settings, direct, in_programs in (
        ({}, set[str](), set(_NAMES)),
        ({"tools": ["stock"]}, {"refund", "close"}, {"stock"}),
        ({"keep": ["stock"]}, {"stock"}, {"refund", "close"}),
        ({"tools": "all", "keep": ["stock"]}, {"stock"}, set(_NAMES)),
    ):
        shown = await plugin.with_settings(**settings).describe_tools(_RecordingShopTools().tools)
        assert set(shown) == {"codeMode", *direct}, settings
        assert {name for name in _NAMES if f"{name}(input" in shown["codeMode"]} == in_programs, settings


async def calls_tools_only_as_selected(plugin: PluginUnderTest) -> None:
    """A tool in both is called both ways; one that is in programs alone the model cannot call by its name."""
    shop, selected = _RecordingShopTools(), plugin.with_settings(tools=["stock", "close"], keep=["stock"])
    assert await selected.call(shop.tools, "stock", {"n": 1}) == Finished(value="stock 1")
    assert await selected.call(shop.tools, "refund", {"n": 2}) == Finished(value="refund 2")
    assert isinstance(await selected.call(shop.tools, "close", {"n": 3}), Failed)
    assert await run_program(selected, shop.tools, "return await tools.stock({ n: 4 });") == Finished(value="stock 4")
    assert isinstance(await run_program(selected, shop.tools, "return await tools.refund({ n: 5 });"), Failed)
    assert shop.did == ["stock", "refund", "stock"], shop.did


async def offers_kept_tools_directly(plugin: PluginUnderTest) -> None:
    """The model itself calls the tools in ``keep``, next to the tools of the surface, which stand for all others."""
    shop, keeping = _RecordingShopTools(), plugin.with_settings(keep=["stock"])
    assert set(await keeping.describe_tools(shop.tools)) == {*plugin.face.offered, "stock"}
    assert await keeping.call(shop.tools, "stock", {"n": 1}) == Finished(value="stock 1")
    assert isinstance(await keeping.call(shop.tools, "close", {"n": 2}), Failed)
    assert isinstance(await run_program(keeping, shop.tools, "return await tools.stock({ n: 3 });"), Failed)
    assert await run_program(keeping, shop.tools, "return await tools.close({ n: 4 });") == Finished(value="close 4")
    assert shop.did == ["stock", "close"], shop.did


async def requires_approval_of_direct_calls(plugin: PluginUnderTest) -> None:
    """A gated tool that the model may call itself does not run unasked: it waits, fails, or no agent is made."""
    shop = _RecordingShopTools(gated=True)
    outcome: Any = None
    try:
        outcome = await plugin.with_settings(tools="all", keep=["refund"]).call(shop.tools, "refund", {"n": 1})
    except ValueError as error:
        assert "refund" in str(error)  # noqa: PT017 - which of the three it is each framework says
    assert not isinstance(outcome, Finished), outcome
    assert shop.did == []


async def refuses_unknown_tool_names(plugin: PluginUnderTest) -> None:
    """A name that fits no tool, and a text in place of a list, are reported before the model is asked anything."""
    for option in ("tools", "keep"):
        for wrong, expected_text in ((["stokc"], "'stock'"), ("stock", f"{option}=['stock']")):
            try:
                await plugin.with_settings(**{option: wrong}).describe_tools(_RecordingShopTools().tools)
            except Exception as error:  # noqa: BLE001 - each framework has its own class
                assert expected_text in str(error), (option, wrong)  # noqa: PT017 - as above
            else:
                raise AssertionError(f"{option}={wrong!r} was taken")


async def lists_tools_as_configured(plugin: PluginUnderTest) -> None:
    """``listing`` makes the model read all declarations, the names alone, or a text that is the same for any tools."""
    shop = _RecordingShopTools()
    shown = {how: await _describe_with_listing(plugin, how, shop.tools) for how in ("full", "names", "search")}
    assert ["stock(input" in shown[how] for how in shown] == [True, False, False]
    assert ["stock" in shown[how] for how in shown] == [True, True, False]
    assert shown["search"] == await _describe_with_listing(plugin, "search", shop.tools[:1])
    js = "const [found] = await tools.$search('stock'); return await tools[found.name]({ n: 1 });"
    assert await run_program(plugin.with_settings(listing="search"), shop.tools, js) == Finished(value="stock 1")


async def _describe_with_listing(plugin: PluginUnderTest, listing: str, tools: list[ContractTool]) -> str:
    return (await plugin.with_settings(listing=listing).describe_tools(tools))["codeMode"]


SELECTION: tuple[Check, ...] = (
    selects_program_and_direct_tools,
    calls_tools_only_as_selected,
    offers_kept_tools_directly,
    requires_approval_of_direct_calls,
    refuses_unknown_tool_names,
    lists_tools_as_configured,
)


# A plugin describes itself to the suite as a `PluginUnderTest` of eight methods. Each check is a coroutine function
# that takes one and raises `AssertionError` if the plugin breaks the promise in its docstring. Programs are written for
# codeMode, as ``await tools.name(input)``: the plugin's `Face` translates them for the model. Leave out checks that do
# not apply to a framework by name, or by the groups ``STATE``, ``SELECTION`` and ``PAUSES``::
#
#     ROWS = without(runs_sequential_tools_alone, *SELECTION)
#
#     @pytest.mark.parametrize(("face", "check"), ROWS, ids=contract_id)
#     def test_contract(face, check): asyncio.run(check(MyPlugin(face)))

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
    "Failed",
    "Finished",
    "Hear",
    "Outcome",
    "Paused",
    "PluginUnderTest",
    "SurfaceUnderTest",
    "WaitingCall",
    "accepts_partial_answers",
    "asks_approvals_for_nested_agents",
    "contract_id",
    "runs_sequential_tools_alone",
    "without",
]

_WAIT_SECONDS = 20.0
_MODEL_CHARACTERS = 20_000


async def offers_only_code_mode(plugin: PluginUnderTest) -> None:
    """The model is offered codeMode alone, and its description declares the tools."""
    shown = await plugin.describe_tools(RecordingTools().tools)
    assert list(shown) == ["codeMode"]
    assert "How many of a product there are." in shown["codeMode"]
    assert "Promise<number>" in shown["codeMode"]


async def converts_tools_namespace_to_string(plugin: PluginUnderTest) -> None:
    """The namespace of the tools names itself, even if tools have the names that the language reads."""
    tools = [ContractTool(name="toString", function=RecordingTools().stock)]
    assert await run_program(plugin, tools, "return String(tools);") == Finished(value="[tool]")


async def offers_only_exec_and_wait(plugin: PluginUnderTest) -> None:
    """The model is offered exec and wait alone, and the description of exec covers the tools."""
    shown = await plugin.describe_tools(RecordingTools().tools)
    assert sorted(shown) == ["exec", "wait"]
    assert "How many of a product there are." in shown["exec"]


async def returns_program_value(plugin: PluginUnderTest) -> None:
    """A program's return value reaches the model as JSON."""
    js = "return { stock: await tools.stock({ product: 'nut' }), none: null, list: [1.5, 'ü', true] };"
    outcome = await run_program(plugin, RecordingTools().tools, js)
    assert outcome == Finished(value={"stock": 7, "none": None, "list": [1.5, "ü", True]}), outcome


async def calls_tools_with_reserved_names(plugin: PluginUnderTest) -> None:
    """A tool can be called whose name the language itself reads of every object."""
    names = ("constructor", "prototype", "toJSON", "toString", "valueOf", "toLocaleString")

    def create_function(name: str) -> Callable[[int], str]:
        def tool(n: int) -> str:
            """Say which tool this is."""
            return f"{name} {n}"

        return tool

    tools = [ContractTool(name=name, function=create_function(name)) for name in names]
    listed = ", ".join(f"await tools.{name}({{ n: {at} }})" for at, name in enumerate(names))
    outcome = await run_program(plugin, tools, f"return [{listed}];")
    assert outcome == Finished(value=[f"{name} {at}" for at, name in enumerate(names)]), outcome


async def keeps_large_integers_exact(plugin: PluginUnderTest) -> None:
    """An integer beyond 2^53 reaches tool and model as it is."""
    order = 1180591620717411303

    def find_order(id: int) -> dict[str, int]:  # noqa: A002 - as such tools have it
        """Find an order."""
        return {"id": id, "next": id + 1}

    tools = [ContractTool(name="find", function=find_order)]
    outcome = await run_program(
        plugin, tools, f"const found = await tools.find({{ id: {order}n }}); return [found, typeof found.id];"
    )
    assert outcome == Finished(value=[{"id": order, "next": order + 1}, "bigint"]), outcome


async def runs_calls_in_parallel(plugin: PluginUnderTest) -> None:
    """Calls under Promise.all are in flight together."""
    meeting = asyncio.Barrier(2)

    async def wait_for_other_call(name: str) -> str:
        """Wait for the other one."""
        await asyncio.wait_for(meeting.wait(), _WAIT_SECONDS)
        return name

    tools = [ContractTool(name="meet", function=wait_for_other_call)]
    outcome = await run_program(
        plugin, tools, "return await Promise.all(['a', 'b'].map((name) => tools.meet({ name })));"
    )
    assert outcome == Finished(value=["a", "b"]), outcome


async def validates_call_inputs(plugin: PluginUnderTest) -> None:
    """A call with wrong input does not run, and the program can catch it."""
    recorder = RecordingTools()
    wrong = "const product = JSON.parse('{}');"
    js = f"{wrong} try {{ await tools.stock({{ product }}); return 'ran'; }} catch {{ return 'refused'; }}"
    assert await run_program(plugin, recorder.tools, js) == Finished(value="refused")
    assert recorder.calls == []


async def reports_finished_calls_of_failed_program(plugin: PluginUnderTest) -> None:
    """The model reads why its program failed; on codeMode also which calls are done."""
    js = "await tools.stock({ product: 'nut' }); throw new TypeError('no luck');"
    outcome = await run_program(plugin, RecordingTools().tools, js)
    assert isinstance(outcome, Failed), outcome
    assert "no luck" in outcome.text
    assert "stock" in outcome.text or not plugin.face.tells_what_was_done


async def reports_console_output_of_failed_program(plugin: PluginUnderTest) -> None:
    """The model of a failed program reads what it had printed."""
    outcome = await run_program(
        plugin, RecordingTools().tools, "console.log('half', 'way'); throw new TypeError('no luck');"
    )
    assert isinstance(outcome, Failed), outcome
    assert "half way" in outcome.text, outcome


async def reports_console_output_without_value(plugin: PluginUnderTest) -> None:
    """The model of a program that returns nothing reads what it printed, and what may be missing."""
    js = "async function main() { console.log('half', 'way'); } main();"
    outcome = await run_program(plugin, RecordingTools().tools, js)
    assert isinstance(outcome, Finished), outcome
    assert "half way" in str(outcome.value), outcome
    assert "return await main();" in str(outcome.value), outcome


async def summarises_large_results(plugin: PluginUnderTest) -> None:
    """A result that would fill the model's context is told of: its size, its shape, its beginning."""
    outcome = await run_program(
        plugin, RecordingTools().tools, "return Array.from({ length: 500 }, (_, n) => n + 'x'.repeat(90));"
    )
    assert isinstance(outcome, Finished), outcome
    assert isinstance(outcome.value, str), outcome
    assert len(outcome.value) <= _MODEL_CHARACTERS, outcome
    assert "an array of 500 items" in outcome.value, outcome
    assert "string[]" in outcome.value, outcome
    assert '["0xxx' in outcome.value, outcome


async def hides_host_errors(plugin: PluginUnderTest) -> None:
    """An accidental exception of a tool appears neither in the program nor in its result."""

    def raise_secret_error() -> None:
        """Fail."""
        raise ValueError(SECRET)

    tools = [ContractTool(name="broken", function=raise_secret_error)]
    js = "try { await tools.broken(); } catch (error) { return String(error) + JSON.stringify(error); }"
    outcome = await run_program(plugin, tools, js)
    assert isinstance(outcome, Finished), outcome
    assert SECRET not in str(outcome.value)


_CODE_MODE_CHECKS: tuple[Check, ...] = (
    offers_only_code_mode,
    converts_tools_namespace_to_string,
    reports_console_output_without_value,
)
_EVERY_SURFACE_CHECKS: tuple[Check, ...] = (
    returns_program_value,
    calls_tools_with_reserved_names,
    keeps_large_integers_exact,
    runs_calls_in_parallel,
    validates_call_inputs,
    reports_finished_calls_of_failed_program,
    reports_console_output_of_failed_program,
    summarises_large_results,
    hides_host_errors,
    *PAUSES,
    *CALLS,
)

CONTRACTS: tuple[tuple[SurfaceUnderTest, Check], ...] = (
    *((CODE_MODE, check) for check in (*_CODE_MODE_CHECKS, *_EVERY_SURFACE_CHECKS, *CONTENT, *STATE, *SELECTION)),
    *((CODE_CALL, check) for check in (*CODE_CALL_ALONE, *_EVERY_SURFACE_CHECKS, offers_kept_tools_directly)),
    *((face, excludes_tool_time_from_timeout) for face in (CODE_MODE, CODE_CALL)),
)
"""Each face with each of its checks, in the order in which a new plugin will want to pass them."""

EXEC_WAIT_CONTRACTS: tuple[tuple[SurfaceUnderTest, Check], ...] = tuple(
    (EXEC_WAIT, check)
    for check in (offers_only_exec_and_wait, *_EVERY_SURFACE_CHECKS, *CONTENT, *STATE)
    if check is not calls_tools_with_reserved_names
)
"""The same for exec and wait, whose programs call by its id a tool with a name that the language reads of objects."""


def without(*checks: Check | tuple[SurfaceUnderTest, Check]) -> tuple[tuple[SurfaceUnderTest, Check], ...]:
    """Return all that there are, for every face, without the checks of what a framework, or one face, does not have."""
    return tuple(
        contract for contract in (*CONTRACTS, *EXEC_WAIT_CONTRACTS) if not {contract, contract[1]}.intersection(checks)
    )


def contract_id(value: Any) -> str:
    """Return what a test of a face, or of a check, is called."""
    return value.__name__ if callable(value) else value.name
