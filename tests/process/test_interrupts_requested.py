"""Tools that pause a program themselves, from wherever they are, and what they see when it goes on."""

from __future__ import annotations

import asyncio

import pytest
from pausing import Spy, go_on, start
from suite import each_row

from codemode import CodeModeToolError, Tool, is_approval_interrupt, request_interrupt, to_approval_messages
from codemode.errors import CodeModeSerializationError


def deep(context, levels):
    if levels:
        return deep(context, levels - 1)
    if context.interrupt is None:
        request_interrupt({"kind": "oauth", "level": "deep"})
    return context.interrupt.resolution


async def awaited(value, context):
    await asyncio.sleep(0)
    return deep(context, 50)


def in_a_thread(value, context):
    return deep(context, 50)


async def through_to_thread(value, context):
    return await asyncio.to_thread(deep, context, 5)


async def in_a_task_group(value, context):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.Event().wait() if context.interrupt is None else asyncio.sleep(0))
        task = group.create_task(awaited(value, context))
    return task.result()


async def in_nested_task_groups(value, context):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(in_a_task_group(value, context))
    return task.result()


async def in_gather(value, context):
    return (await asyncio.gather(awaited(value, context), asyncio.sleep(0)))[0]


async def in_a_timeout(value, context):
    async with asyncio.timeout(20):
        return await awaited(value, context)


async def in_an_async_generator(value, context):
    yield "first"
    await asyncio.sleep(0)
    yield deep(context, 3)


async def behind_except_exception(value, context):
    try:
        return await awaited(value, context)
    except Exception:
        return "swallowed"


async def in_a_finally(value, context):
    try:
        return await awaited(value, context)
    finally:
        await asyncio.sleep(0)


WAYS = [
    awaited, in_a_thread, through_to_thread, in_a_task_group, in_nested_task_groups, in_gather, in_a_timeout,
    in_an_async_generator, behind_except_exception, in_a_finally,
]  # fmt: skip


@each_row("execute", WAYS, ids=lambda way: way.__name__)
def test_a_tool_can_pause_from_anywhere(execute):
    tools = [Tool("login", execute=execute)]
    interrupt = start("try { return await tools.login(1) } catch (e) { return e.message }", tools)
    assert interrupt.payload == {"kind": "oauth", "level": "deep"}
    assert not is_approval_interrupt(interrupt)
    assert to_approval_messages(interrupt) == []
    assert go_on(interrupt, tools, {"token": 5}) == {"token": 5}


def test_a_tool_sees_what_it_asked_and_what_was_answered():
    seen = []
    spy = Spy()

    def ask(_value, context):
        seen.append(context.interrupt)
        if len(seen) < 3:
            request_interrupt({"kind": "oauth", "round": len(seen)})
        return "in"

    tools = [spy.tool("login", ask)]
    first = start("return await tools.login(1)", tools, tool_call_id="o")
    second = go_on(first, tools, "one")
    assert second.interrupt_id != first.interrupt_id
    assert second.tool_call_id == first.tool_call_id == "o:tool-1"
    assert second.payload == {"kind": "oauth", "round": 2}
    assert go_on(second, tools, None) == "in"
    assert seen[0] is None
    assert [(one.id, one.payload, one.resolution) for one in seen[1:]] == [
        (first.interrupt_id, {"kind": "oauth", "round": 1}, "one"),
        (second.interrupt_id, {"kind": "oauth", "round": 2}, None),
    ]


@pytest.mark.parametrize("payload", [None, {}, {"kind": ""}, {"kind": 5}, {"kind": "ai-sdk-code-mode/tool-approval"}])
def test_a_wrong_payload_is_the_tools_own_type_error(payload):
    caught = []

    def wrong(value):
        try:
            request_interrupt(payload)
        except TypeError as error:
            caught.append(error)
            raise

    with pytest.raises(CodeModeToolError) as failed:
        start("return await tools.wrong(1)", [Tool("wrong", execute=wrong)])
    assert failed.value.__cause__ is caught[0]


def test_a_payload_that_is_too_large_or_no_json_fails_the_call():
    for more in ("x" * 200, object()):

        def ask(value, more=more):
            request_interrupt({"kind": "oauth", "more": more})

        options = {"execution_policy": {"max_tool_output_bytes": 100}}
        with pytest.raises(CodeModeSerializationError, match="interrupt payload"):
            start("return await tools.ask(1)", [Tool("ask", execute=ask)], options)


@pytest.mark.parametrize("where", ["rule", "async rule", "callback"])
def test_what_decides_about_a_call_cannot_pause(where):
    def pause(*_):
        request_interrupt({"kind": "oauth"})

    async def later(*_):
        request_interrupt({"kind": "oauth"})

    rule = {"rule": pause, "async rule": later, "callback": True}[where]
    options = {"approval": {"on_approval_required": pause}}
    spy = Spy()
    with pytest.raises(CodeModeToolError) as caught:
        start("return await tools.refund(1)", [spy.tool("refund", needs_approval=rule)], options)
    assert isinstance(caught.value.__cause__, TypeError)
    assert spy.ran == []
