"""Where a program makes its calls: told of those that a person may be asked about, and of no others."""

from __future__ import annotations

import asyncio
import json

import pytest
from pausing import OK, PAUSING, Spy, go_on, start
from suite import each_row
from waiting import within

from codemode import CodeModeToolError, Interrupt, Tool, create_code_mode_tool, run_code_mode_sync

# How a program can call `tools.refund`; "§" is where the engine places that.
CALLS = {
    "the first line": "return await tools§.refund(1)",
    "another line": "const a = 1;\n  return await tools.§refund(1)",
    "behind types": "const a: Map<string, number> = new Map(); return await tools§.refund(1 as number)",
    "behind what is long in bytes": 'const é = "ü😀";\nconst z = "ü😀"; return await tools.§refund(1)',
    "in a function": "const f = async () => {\n  return tools.§refund(1);\n};\nreturn await f();",
    "after an answer": "await tools.free(1);\nreturn await tools.§refund(1)",
    "through natives": "const [one] =\n [1].map(§tools.refund);\nreturn await one",
    "by another name": "const { refund } = tools;\nreturn await §refund(1)",
    "named as a frame": 'const f = () => tools§.refund(1);\n'
    'Object.defineProperty(f, "name", { value: "a (<input>:9:9)\\n    at b" });\nreturn await f();',
    "in a frame that is named as one": 'const o = { "tools (<input>:7:7)\\n    at x"() {\n'
    " return tools.§refund(1) } };\n"
    "return await Object.values(o)[0]();",
}  # fmt: skip


def marked(code: str) -> tuple[str, tuple[int, int]]:
    before, _, after = code.partition("§")
    return before + after, (before.count("\n") + 1, len(before.rpartition("\n")[2].encode("utf-16-le")) // 2 + 1)


def placed(js: str, *others: str) -> tuple[int | None, int | None]:
    spy = Spy()
    interrupt = start(js, [spy.guarded(), spy.tool("free"), *map(spy.tool, others)])
    assert isinstance(interrupt, Interrupt)
    return interrupt.requests[0].line, interrupt.requests[0].column


@each_row("code", CALLS.values(), ids=CALLS)
def test_a_call_that_waits_has_its_place(code):
    js, expected = marked(code)
    assert placed(js) == expected


@pytest.mark.parametrize("code", [CALLS["another line"], CALLS["behind what is long in bytes"]])
def test_it_is_where_an_error_of_the_same_call_is(code):
    js, expected = marked(code)

    def fail(_value, _context):
        raise CodeModeToolError("no")

    with pytest.raises(CodeModeToolError) as raised:
        run_code_mode_sync(js, [Tool("refund", execute=fail)])
    assert (raised.value.details["line"], raised.value.details["column"]) == expected


def entries(interrupt):
    texts = map(json.loads, (text for text in interrupt.continuation["body"] if text.startswith('{"entry"')))
    return [one["entry"] for one in texts]


def test_every_call_has_one_where_any_tool_asks_and_none_has_where_no_tool_does():
    spy = Spy()
    js = "await tools.free(1);\nawait tools.$search('x');\nreturn await tools.login(2)"
    asking = [spy.asking(), spy.tool("free")]
    assert [one.get("line") for one in entries(start(js, [*asking, spy.guarded()]))] == [1, None, 3]
    assert [one.get("line") for one in entries(start(js, asking))] == [None, None, None]


def test_a_resume_keeps_them_and_tells_of_what_comes():
    spy = Spy()
    tools = [spy.guarded()]
    first = start("await tools.refund(1);\nconst two = tools.refund(2);\nreturn await two", tools)
    second = go_on(first, tools, OK)
    assert [(one.line, one.column) for one in (*first.requests, *second.requests)] == [(1, 12), (2, 19)]
    assert [one["line"] for one in entries(second)] == [1, 2]
    assert go_on(second, tools, OK) == {"done": "refund"}


def test_a_recovery_tells_where_the_calls_stand_of_which_nothing_is_known():
    spy = Spy()

    async def cut_off():
        begun = asyncio.Event()

        async def hang(_value, context):
            begun.set()
            await context.aborted.wait()

        code_mode = create_code_mode_tool([spy.guarded(), Tool("hangs", execute=hang)], PAUSING)
        run = asyncio.ensure_future(code_mode.execute({"js": "\n\nreturn await tools.hangs(2)"}))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await run
        return raised.value.__cause__.recovery

    assert [one.line for one in within(cut_off()).requests] == [3]


FULL_STACK = """
const calls = [], stacks = [];
const call = () => {
  if (calls.length < 30) try { calls.push(tools.free(calls.length)) } catch (error) { stacks.push(typeof error.stack) }
};
const deep = () => {
  try { deep() } catch (error) {
    call();
  }
  call();
};
deep();
await Promise.all(calls);
try { null.x } catch (error) { stacks.push(error.stack.includes("<input>:14")) }
return [typeof Error.prepareStackTrace, "prepareStackTrace" in Error, calls.length, ...new Set(stacks)];
"""


def test_a_program_that_calls_with_next_to_no_stack_left_sees_nothing_of_it():
    spy = Spy()
    result = run_code_mode_sync(FULL_STACK, [spy.guarded(), spy.tool("free")], options=PAUSING)
    assert result == ["undefined", False, 30, "string", True]
