"""What a pause shows to whoever decides: program, calls and requests, checked by its signature."""

from __future__ import annotations

import json

import pytest
from pausing import PAUSING, Spy

from codemode import CodeModeProtocolError, Tool, create_code_mode_tool, inspect_interrupt

JS = """const all: string[] = [];
const [a, b] = await Promise.allSettled([tools.free({ n: 1 }), tools.fails(2)]);
return await tools.refund({ n: 3 });
"""


def paused(**settings):
    spy = Spy()

    def fail(_value, _context):
        raise RuntimeError("a secret")

    tools = [spy.guarded(), spy.tool("free"), Tool("fails", execute=fail)]
    options = {**PAUSING, "continuation": {"keys": "k", **settings}}
    return create_code_mode_tool(tools, options).execute_sync({"js": JS}), options


@pytest.mark.parametrize("form", [{}, {"compress": True}, {"seal": True}, {"max_age_ms": 1}])
def test_all_that_a_program_has_done_and_waits_for(form):
    interrupt, options = paused(**form)
    for shown in (interrupt, json.loads(json.dumps(interrupt.to_dict()))):
        view = inspect_interrupt(shown, options)
        assert (view.unreadable, view.requests) == (None, interrupt.requests)
        assert view.js.splitlines()[2] == "return await tools.refund({ n: 3 });"
        free, fails, refund = view.calls
        assert [one.order for one in view.calls] == [1, 2, 3]
        assert (free.name, free.input, free.status, free.value) == ("free", {"n": 1}, "fulfilled", {"done": "free"})
        assert (fails.status, fails.input, "secret" in fails.error["message"]) == ("rejected", 2, False)
        assert (refund.status, refund.answered, refund.input) == ("waiting", None, {"n": 3})
        assert {free.answered, fails.answered} == {1, 2}
        assert [one.line for one in view.calls] == [2, 2, 3]
        assert refund.column == view.requests[0].column


@pytest.mark.parametrize("seal", [True, False])
def test_without_the_key_there_are_requests_alone_and_that_is_said(seal):
    interrupt, _ = paused(seal=seal)
    view = inspect_interrupt(interrupt, {"continuation": {"keys": "another"}})
    assert (view.js, view.calls, view.requests) == (None, (), interrupt.requests)
    assert "key" in view.unreadable


def test_bad_input_is_refused():
    interrupt, options = paused()
    plain = interrupt.to_dict()
    request = {**plain["requests"][0], "input": {"n": 4}}
    for bad in (
        None,
        {},
        "interrupt",
        {**plain, "continuation": {}},
        {**plain, "input": {"n": 4}, "requests": [request]},
        {**plain, "continuation": {**plain["continuation"], "body": plain["continuation"]["body"][:-1]}},
    ):
        with pytest.raises(CodeModeProtocolError):
            inspect_interrupt(bad, options)
    for wrong in (options, {**options, "continuation": {"keys": "k", "conversation_id": "b"}}):
        other = {"conversation_id": "c"} if wrong is options else {}
        with pytest.raises(CodeModeProtocolError, match="conversation"):
            inspect_interrupt(interrupt, wrong, **other)
    with pytest.raises(ValueError, match="keys"):
        inspect_interrupt(interrupt, {"continuation": {"keys": 5}})
