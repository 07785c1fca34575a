"""Checks of what plugins promise of what programs leave for later ones of a conversation, on codeMode and exec."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from .plugin_under_test import (
    Check,
    ContractAnswer,
    Desk,
    Failed,
    Finished,
    Outcome,
    PluginUnderTest,
    resume,
    run,
)

_COUNT = "await state.set('n', (await state.get('n') ?? 0) + 1); "
_GET = "return await state.get('n');"


async def _came_to(value: Any, work: Awaitable[Outcome]) -> str:
    outcome = await work
    assert outcome == Finished(value=value), outcome
    assert isinstance(outcome, Finished)
    return outcome.conversation


async def has_the_state_it_tells_of(plugin: PluginUnderTest) -> None:
    """Where the model reads of state, programs find what they leave, under any name; elsewhere there is none."""
    told = any("state.get(key)" in text for text in (await plugin.shown(Desk().tools)).values())
    js = "await state.set('__proto__', { n: 1 }); return [await state.get('__proto__'), await state.keys()];"
    outcome = await run(plugin, Desk().tools, js if told else "return typeof state;")
    assert outcome == Finished(value=[{"n": 1}, ["__proto__"]] if told else "undefined"), outcome


async def keeps_state_for_the_conversation(plugin: PluginUnderTest) -> None:
    """A later program of the conversation reads what an earlier one wrote; another conversation does not."""
    desk = Desk()
    first = await _came_to(1, run(plugin, desk.tools, _COUNT + _GET))
    await _came_to([], run(plugin, desk.tools, "return await state.keys();"))
    second = await _came_to(2, run(plugin, desk.tools, _COUNT + _GET, after=first))
    await _came_to(2, run(plugin, desk.tools, _GET, after=second))


async def keeps_the_state_of_a_failed_program(plugin: PluginUnderTest) -> None:
    """What a program wrote stays, though it fails later."""
    desk = Desk()
    failed = await run(plugin, desk.tools, _COUNT + "throw new Error('later');")
    assert isinstance(failed, Failed), failed
    await _came_to(1, run(plugin, desk.tools, _GET, after=failed.conversation))


async def writes_state_once(plugin: PluginUnderTest) -> None:
    """A program that pauses and goes on has written once, and reads what it read before."""
    desk = Desk()
    paused = await desk.paused(plugin, f"{_COUNT} await tools.refund({{ order: 'a' }}); {_GET}")
    answers = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    first = await _came_to(1, resume(plugin, desk.tools, paused.state, answers))
    await _came_to(1, run(plugin, desk.tools, _GET, after=first))
    assert desk.did == [("refund", ("a", 500))]


async def keeps_large_results_whole(plugin: PluginUnderTest) -> None:
    """Of a result that would fill the model's context the next program finds the whole, under the key it is told."""
    tools = Desk().tools
    told = await run(plugin, tools, "return Array.from({ length: 500 }, (_, n) => n + 'x'.repeat(90));")
    assert isinstance(told, Finished), told
    assert 'state.get("result:1")' in told.value, told
    js = 'const all = await state.get("result:1"); return [all.length, all[499].slice(0, 4)];'
    await _came_to([500, "499x"], run(plugin, tools, js, after=told.conversation))


STATE: tuple[Check, ...] = (
    has_the_state_it_tells_of,
    keeps_state_for_the_conversation,
    keeps_the_state_of_a_failed_program,
    writes_state_once,
    keeps_large_results_whole,
)
