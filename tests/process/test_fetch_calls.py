"""A fetch is a bridge request: detached, limited, replayed, told of (A146, A150)."""

from __future__ import annotations

import asyncio
import json

import pytest
from fetching import silent
from http_server import response

from codemode import CodeModeTimeoutError, Tool, create_code_mode_tool
from codemode.errors import CodeModeDetachedBridgeRequestError, CodeModeFetchError


def test_a_fetch_that_nobody_awaits_is_an_error(ask, server):
    server.on("/x", response(b"x"))
    with pytest.raises(CodeModeDetachedBridgeRequestError) as caught:
        ask('const p = fetch("ORIGIN/x"); await fetch("ORIGIN/x"); return 1')
    assert caught.value.details["calls"][0]["kind"] == "fetch"


def test_fetches_share_the_limits_of_calls(ask, server):
    server.on("/x", response(b"x"))
    js = """
      const all = await Promise.allSettled([tools.echo(1), fetch("ORIGIN/x"), fetch("ORIGIN/x")]);
      return all.map(r => r.reason?.name ?? r.status)
    """
    tools = [Tool("echo", execute=lambda value: value)]
    assert ask(js, tools, max_in_flight_bridge_requests=2) == ["fulfilled", "fulfilled", "CodeModeBridgeLimitError"]


def test_fetches_overlap(ask, server):
    both = asyncio.Event()
    waiting = []

    async def meet(request, _reader, writer):
        waiting.append(request)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        writer.write(response(b"met"))

    server.on("/a", meet)
    server.on("/b", meet)
    js = 'const a = fetch("ORIGIN/a"), b = fetch("ORIGIN/b"); return [await (await a).text(), await (await b).text()]'
    assert ask(js) == ["met", "met"]


def test_a_promise_of_fetch_is_like_any_other(ask, server):
    server.on("/x", response(b"x"))
    js = """
      const p = fetch("ORIGIN/x");
      const [r, raced] = await Promise.all([p, Promise.race([p])]);
      return [p instanceof Promise, r === raced, r === await p, await r.text()]
    """
    assert ask(js) == [True, True, True, "x"]
    assert len(server.requests) == 1


def test_events_tell_urls_methods_and_sizes_but_no_bodies(ask, server):
    server.on("/x", response(b"the-answer"))
    seen = []
    hooks = dict.fromkeys(("on_fetch_request", "on_fetch_result", "on_trace", "on_nested_tool_call"), seen.append)
    js = """
      await fetch("ORIGIN/x?q", { method: "post", body: "the-question" });
      await fetch("http://other.test/").catch(() => 0)
    """
    ask(js, lifecycle=hooks)
    asked, answered, asked_2, refused, trace = seen
    assert (asked.url, asked.method, asked.bridge_index, asked.replayed) == (server.origin + "/x?q", "POST", 1, False)
    assert asked.input_bytes > len("the-question")
    assert (answered.status, answered.http_status, answered.url, answered.error) == ("fulfilled", 200, asked.url, None)
    assert answered.output_bytes > len("the-answer")
    assert answered.duration_ms >= 0
    assert (asked_2.url, asked_2.bridge_index) == ("http://other.test/", 2)
    assert (refused.status, refused.http_status, type(refused.error)) == ("rejected", None, CodeModeFetchError)
    assert trace.bridge_requests == (answered, refused)
    assert "the-" not in json.dumps([event.to_dict() for event in seen])
    assert "fetch POST" in trace.to_text()


def test_a_resumed_program_does_not_ask_again(within, server):
    server.on("/x", response(b"\xff\xd8\xff", "418 Teapot"))
    seen = []
    options = {
        "fetch_policy": {"allowed_origins": [server.origin]},
        "approval": {"mode": "interrupt"},
        "lifecycle": {"on_fetch_result": seen.append},
        "continuation": {"keys": "k" * 40},
    }
    tool = create_code_mode_tool([Tool("pay", execute=lambda value: value, needs_approval=True)], options)
    js = f"""
      const r = await fetch("{server.origin}/x"), failed = await fetch("http://other.test").catch(e => e);
      await tools.pay(1);
      return [r.status, [...new Uint8Array(await r.arrayBuffer())].length, failed.name, typeof fetch]
    """
    paused = within(tool.execute({"js": js}))
    assert within(tool.resume(paused, {"approved": True})) == [418, 3, "CodeModeFetchError", "function"]
    assert len(server.requests) == 1
    assert [(event.replayed, event.http_status) for event in seen] == [
        (False, 418),
        (False, None),
        (True, 418),
        (True, None),
    ]


def paused_after_a_fetch(within, server, js, options):
    tool = create_code_mode_tool([Tool("pay", execute=lambda value: value, needs_approval=True)], options)
    return within(tool.execute({"js": js.replace("ORIGIN", server.origin)}))


def test_a_resume_without_a_policy_makes_no_new_request(within, server):
    server.on("/x", response(b"x"))
    options = {"approval": {"mode": "interrupt"}, "continuation": {"keys": "k" * 40}}
    allowed = {**options, "fetch_policy": {"allowed_origins": [server.origin]}}
    js = """
      const first = await (await fetch("ORIGIN/x")).text();
      await tools.pay(1);
      return [first, await fetch("ORIGIN/x").catch(e => e.message)]
    """
    paused = paused_after_a_fetch(within, server, js, allowed)
    tool = create_code_mode_tool([Tool("pay", execute=lambda value: value, needs_approval=True)], options)
    assert within(tool.resume(paused, {"approved": True})) == ["x", "fetch is not allowed"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(("method", "waits"), [("GET", False), ("POST", True)])
def test_a_request_that_was_cut_off_is_repeated_only_when_it_changes_nothing(
    within, server, method, waits, passing_time
):
    async def late(*asked):
        passing_time.skip(61)
        await silent(*asked)

    server.on("/slow", late)
    options = {
        "fetch_policy": {"allowed_origins": [server.origin], "allowed_methods": ["GET", "POST"]},
        "execution_policy": {"timeout_ms": 60_000},
        "continuation": {"keys": "k" * 40},
    }
    tool = create_code_mode_tool([], options)
    js = f'return (await fetch("{server.origin}/slow", {{ method: "{method}" }})).text()'
    with pytest.raises(CodeModeTimeoutError) as caught:
        within(tool.execute({"js": js}))
    server.on("/slow", response(b"at last"))
    recovery = caught.value.recovery
    assert bool(recovery.requests) is waits
    answers = {"resolution": {"runAgain": True}} if waits else {"resolutions": {}}
    assert within(tool.resume(recovery, **answers)) == "at last"
    assert server.asked() == [f"{method} /slow"] * 2
