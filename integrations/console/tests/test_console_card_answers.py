"""What a tool asks itself, calls of which nobody knows how they ended, and callers that send JSON."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from card_pages import BOB, JSON, CardDesk, CardForm, call, keeping
from console_visitors import EVE, run
from suite import each_row

from codemode import CodeModeAbortedError, Tool, ToolCallContext, request_interrupt

QUESTION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "account": {"type": "string", "minLength": 3},
        "limit": {"type": "integer"},
        "note": {"type": "string"},
    },
    "required": ["account", "limit"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order", "cents"],
}
VALUE = {"order": "A-17", "cents": 5}
_NOTHING: Any = object()


def asking(*payloads: dict[str, Any], input_schema: Any = None) -> Tool:
    """Return a tool that asks all of this, one after the other, and returns the last answer."""

    async def execute(_input: Any, context: ToolCallContext) -> Any:
        answered = context.interrupt
        at = 0 if answered is None else 1 + [one["kind"] for one in payloads].index(answered.payload["kind"])
        if at < len(payloads):
            request_interrupt(payloads[at])
        assert answered is not None
        return {"answer": answered.resolution}

    return Tool("connect", execute=execute, input_schema=input_schema or {"type": "object"})


CONNECT = "return await tools.connect({})"


def test_a_tools_own_question_is_answered_by_its_form() -> None:
    async def work() -> None:
        desk = CardDesk([asking({"kind": "bank/<b>", "question": "Which <i>account</i>?", "schema": QUESTION})])
        record_id = await desk.pause(CONNECT)
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            assert "Which &lt;i&gt;account&lt;/i&gt;?" in page
            form = CardForm(page)
            assert "reason" not in {one.get("name") for one in form.controls}
            form.fill("/account", "x").fill("/limit", "much")
            for answer in (await form.enter(ana), await form.press(ana, "Answer")):
                assert answer.status_code == 422
                form = CardForm(answer.text)
                assert form.control("/account")["aria-invalid"] == form.control("/limit")["aria-invalid"] == "true"
                assert (form.control("/account")["value"], form.control("/limit")["value"]) == ("x", "much")
            assert (await form.fill("/account", "DE1").fill("/limit", "7").enter(ana)).status_code == 200
            assert await desk.states(record_id) == ["waiting"]
            assert (await form.press(ana, "Answer")).status_code == 303
            assert "Answered by ana" in (await ana.get(f"/records/{record_id}")).text
        assert await desk.outcome(record_id) == {"answer": {"account": "DE1", "limit": 7}}

    run(work)


@each_row("schema", [None, QUESTION])
@each_row("given", [{"order": "A-17 <b>"}, [1, "A-17 <b>"], "A-17 <b>"])
def test_a_question_is_shown_with_the_input_of_its_call(given: Any, schema: Any) -> None:
    async def work() -> None:
        payload = {"kind": "own/call", "input": "another one", **({} if schema is None else {"schema": schema})}
        desk = CardDesk([asking(payload, input_schema={"type": ["object", "array", "string"]})])
        record_id = await desk.pause(f"return await tools.connect({json.dumps(given)})")
        async with desk.browser() as ana, desk.browser(EVE) as eve:
            for browser in (ana, eve):
                page = (await browser.get(f"/records/{record_id}")).text
                question, shown = re.findall(r"<h3>(?:Question|Input)</h3>\n<pre>(.*?)</pre>", page, re.DOTALL)
                assert "own/call" in question
                assert "A-17 &lt;b&gt;" in shown
            whole = await ana.get(f"/records/{record_id}/value?of=requests/1/asked")
            assert json.loads(whole.text) == {"question": {"kind": "own/call", "input": "another one"}, "input": given}

    run(work)


@each_row("answer", ["text", 0, None, False, [1, {"a": None}], {"approved": True}, 12345678901234567890])
def test_a_question_without_a_schema_takes_any_json(answer: Any) -> None:
    async def work() -> None:
        desk = CardDesk([asking({"kind": "ask"})])
        record_id = await desk.pause(CONNECT)
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            assert (await form.press(ana, "Answer")).status_code == 422
            assert (await form.fill("json", "neither").press(ana, "Answer")).status_code == 422
            assert (await form.fill("json", json.dumps(answer)).press(ana, "Answer")).status_code == 303
            assert (await form.press(ana, "Answer")).status_code == 303
            assert (await form.fill("json", '"other"').press(ana, "Answer")).status_code == 409
        assert await desk.outcome(record_id) == {"answer": answer}

    run(work)


def test_one_question_after_the_other_takes_no_answer_of_the_one_before() -> None:
    async def work() -> None:
        desk = CardDesk([asking({"kind": "first", "schema": QUESTION}, {"kind": "second"})])
        record_id = await desk.pause(CONNECT)
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            old = (await desk.form(bob, record_id)).fill("/account", "his").fill("/limit", "1")
            new = (await desk.form(ana, record_id)).fill("/account", "hers").fill("/limit", "2")
            assert (await new.press(ana, "Answer")).status_code == 303
            await desk.go_on(record_id)
            late = await old.press(bob, "Answer")
            assert (late.status_code, "ana decided first" in late.text, "his" in late.text) == (409, True, True)
            second = CardForm(late.text)
            assert (await second.fill("json", "2").press(bob, "Answer")).status_code == 303
        assert await desk.outcome(record_id) == {"answer": 2}

    run(work)


async def _unknown(desk: CardDesk, begun: asyncio.Event) -> str:
    js = "try { return await tools.charge({ cents: 500 }) } catch (error) { return { failed: error.message } }"
    running = asyncio.create_task(desk.code_mode.execute({"js": js}))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as stopped:
        await running
    aborted = stopped.value.__cause__
    assert isinstance(aborted, CodeModeAbortedError)
    assert aborted.recovery is not None
    return await desk.store.put(aborted.recovery, tool=desk.code_mode, tenant="acme", app="shop")


def charging(begun: asyncio.Event, charged: list[Any]) -> Tool:
    async def execute(given: Any, _context: Any) -> str:
        charged.append(given)
        if len(charged) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "charged again"

    return Tool("charge", execute=execute, input_schema={"type": "object", "properties": {"cents": {}}})


@pytest.mark.parametrize(("label", "fields", "outcome", "times"), [
    ("Record this result", {"json": '{"id": 7}'}, {"id": 7}, 1),
    ("Record this result", {"json": "null"}, None, 1),
    ("It failed", {"reason": "the bank <said> no"}, {"failed": "the bank <said> no"}, 1),
    ("Run it again", {"json": "nonsense", "reason": "why not"}, "charged again", 2),
])  # fmt: skip
def test_somebody_says_how_a_call_ended(label: str, fields: dict[str, str], outcome: Any, times: int) -> None:
    async def work() -> None:
        begun, charged = asyncio.Event(), list[Any]()
        desk = CardDesk([charging(begun, charged)])
        record_id = await _unknown(desk, begun)
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            assert (await form.enter(ana)).status_code == 422
            for wrong in ("Record this result", "It failed"):
                assert (await form.press(ana, wrong)).status_code == 422
            for name in ("approve", "answer", "edit", "nonsense"):
                assert (await form.send(ana, "decision", name)).status_code == 400
            assert await desk.states(record_id) == ["waiting"]
            for name, text in fields.items():
                form.fill(name, text)
            assert (await form.press(ana, label)).status_code == 303
            assert (await form.press(ana, label)).status_code == 303
            assert " by ana" in (await ana.get(f"/records/{record_id}")).text
        assert await desk.outcome(record_id) == outcome
        assert len(charged) == times

    run(work)


def test_a_row_says_whether_a_call_is_reviewed_answered_or_resolved() -> None:
    async def work() -> None:
        begun = asyncio.Event()
        unknown, asks = CardDesk([charging(begun, [])]), CardDesk([asking({"kind": "first"})])
        for desk, record_id, verb in (
            (unknown, await _unknown(unknown, begun), "Resolve"),
            (asks, await asks.pause(CONNECT), "Answer"),
        ):
            async with desk.browser() as ana:
                listed, record = (await ana.get("/")).text, (await ana.get(f"/records/{record_id}")).text
            assert re.search(rf'/records/{record_id}" aria-describedby="row1">{verb}</a>', listed), listed
            assert [">outcome unknown</span>" in one for one in (listed, record)] == [verb == "Resolve"] * 2, verb

    run(work)


def test_the_field_that_does_not_do_is_the_one_that_is_marked() -> None:
    async def work() -> None:
        begun, charged = asyncio.Event(), list[Any]()
        desk = CardDesk([charging(begun, charged)])
        record_id = await _unknown(desk, begun)
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            for label, typed, marked, other in [
                ("It failed", {}, "reason", "json"),
                ("It failed", {"json": "nonsense"}, "reason", "json"),
                ("It failed", {"json": "1", "reason": "x" * 2001}, "reason", "json"),
                ("Run it again", {"reason": "x" * 2001}, "reason", "json"),
                ("Record this result", {}, "json", "reason"),
                ("Record this result", {"json": "nonsense", "reason": "why"}, "json", "reason"),
            ]:
                one = form.as_shown()
                for name, text in typed.items():
                    one.fill(name, text)
                answer = await one.press(ana, label)
                shown = CardForm(answer.text)
                assert answer.status_code == 422
                assert shown.control(marked)["aria-invalid"] == "true"
                described = shown.control(marked)["aria-describedby"].split()
                assert all(f'id="{name}"' in answer.text for name in described), described
                assert "aria-invalid" not in shown.control(other)
                assert ("Enter what the call returned." in answer.text) is (marked == "json" and not typed)
                assert ("This is not JSON. Put text in quotes." in answer.text) is (marked == "json" and bool(typed))
        assert await desk.states(record_id) == ["waiting"]

    run(work)


@pytest.mark.parametrize(("reason", "is_marked"), [("x" * 2001, True), ("", False)])
def test_a_denial_whose_reason_is_too_long_marks_the_reason_alone(reason: str, is_marked: bool) -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("/cents", "much").fill("reason", reason)
            answer = await form.press(ana, "Deny" if is_marked else "Approve with changes")
            shown = CardForm(answer.text)
            assert answer.status_code == 422
            assert shown.control("/cents")["value"] == "much"
            assert ("aria-invalid" in shown.control("reason")) is is_marked
            assert ("aria-invalid" in shown.control("/cents")) is not is_marked

    run(work)


async def _asked(browser: Any, record_id: str) -> tuple[str, dict[str, str]]:
    (one,) = (await browser.get(f"/records/{record_id}", headers=JSON)).json()["requests"]
    shown = {"form_token": one["formToken"], "version": one["version"], "shown": one["shown"]}
    return f"/records/{record_id}/requests/{one['id']}", shown


@each_row("said, decision", [
    ({"decision": "approve"}, {"approved": True}),
    ({"decision": "approve", "reason": "fine"}, {"approved": True, "reason": "fine"}),
    ({"decision": "approve", "input": VALUE}, {"approved": True}),
    ({"decision": "edit", "input": {**VALUE, "cents": 2**70}}, {"approved": True, "input": {**VALUE, "cents": 2**70}}),
    ({"decision": "edit", "input": VALUE, "reason": " x "}, {"approved": True, "reason": "x"}),
    ({"decision": "deny", "reason": "no\nway"}, {"approved": False, "reason": "no\nway"}),
])  # fmt: skip
def test_a_caller_decides_by_json(said: dict[str, Any], decision: Any) -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            path, shown = await _asked(ana, record_id)
            _, his = await _asked(bob, record_id)
            for _ in range(2):
                answer = await ana.post(path, json={**shown, **said}, headers=JSON)
                assert (answer.status_code, answer.json()["state"]) == (200, "decided")
            (one,) = await desk.requests(record_id)
            assert one.decision == decision
            late = await bob.post(path, json={**his, **said}, headers=JSON)
            assert (late.status_code, late.json()["error"]["actor"]) == (409, "ana")

    run(work)


@each_row("decision", ["approved", "answer", "Approve", "run-again", "\u202e"])
def test_a_caller_is_told_which_decisions_a_request_takes(decision: str) -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            path, shown = await _asked(ana, record_id)
            answer = await ana.post(path, json={**shown, "decision": decision}, headers=JSON)
            error = answer.json()["error"]
            assert (answer.status_code, error["decisions"]) == (400, ["approve", "deny", "edit", "preview"])
            assert error["message"] == "decision must be one of approve, deny, edit, preview."
            assert "approve, deny, edit, preview" in (await ana.post(path, json={**shown, "decision": decision})).text
        assert await desk.states(record_id) == ["waiting"]

    run(work)


def test_what_a_caller_sends_wrongly_decides_nothing() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana, desk.browser(EVE) as eve, desk.browser(BOB) as bob:
            path, shown = await _asked(ana, record_id)
            for body, status in [
                ({"decision": "approve"}, 400),
                ({**shown}, 400),
                ([], 400),
                ("approve", 400),
                ({**shown, "decision": True}, 400),
                ({**shown, "decision": "approve", "more": 1}, 400),
                ({**shown, "decision": "edit", "input": 1, "value": 1}, 400),
                ({**shown, "decision": "answer", "value": 1}, 400),
                ({**shown, "decision": "approve", "form_token": "x"}, 403),
                ({**shown, "decision": "approve", "input": {"order": "A-17", "cents": 6}}, 422),
                ({**shown, "decision": "edit", "input": {"order": "A-17", "cents": "6"}}, 422),
                ({**shown, "decision": "edit", "input": None}, 422),
                ({**shown, "decision": "deny", "reason": "x" * 2001}, 422),
            ]:
                answer = await ana.post(path, json=body, headers=JSON)
                assert answer.status_code == status, body
                assert answer.json()["error"]["status"] == status
            for content in (b"", b"{", b"\xff", b"[" * 5000, b'{"a": NaN}'):
                sent = await ana.post(path, content=content, headers={**JSON, "content-type": "application/json"})
                assert sent.status_code == 400, content
            assert (
                "/cents"
                in (
                    await ana.post(
                        path, json={**shown, "decision": "edit", "input": {**VALUE, "cents": "6"}}, headers=JSON
                    )
                ).json()["problems"]
            )
            assert (await eve.post(path, json={**shown, "decision": "approve"}, headers=JSON)).status_code == 403
            cross = {**JSON, "sec-fetch-site": "cross-site"}
            assert (await bob.post(path, json={**shown, "decision": "approve"}, headers=cross)).status_code == 403
        assert await desk.states(record_id) == ["waiting"]

    run(work)


@pytest.mark.parametrize("headers", [{}, JSON])
def test_bodies_that_are_no_form_or_too_much_decide_nothing(headers: dict[str, str]) -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            path = form.action
            kind = {"content-type": "application/x-www-form-urlencoded", **headers}
            for content, status in [
                (b"json=" + b"x" * (5 << 20), 413),
                (b"&".join(b"/a%d=1" % n for n in range(2001)), 413),
                (b"reason=%ff", 400),
            ]:
                assert (await ana.post(path, content=content, headers=kind)).status_code == status
            big = {**headers, "content-type": "application/json"}
            assert (await ana.post(path, content=b" " * (5 << 20), headers=big)).status_code == 413
            assert (
                await ana.post(path, content=b"x", headers={**headers, "content-type": "text/plain"})
            ).status_code == 400
            approve = ("decision", "approve")
            for more in [
                [("decision", "deny")], [("reason", "x")], [("form_token", "x")], [("/cents/1", "1")],
                [("/cents", "1")],
                [("was:/cents", "x")], [("add", "/cents")], [("remove", "x")],
            ]:  # fmt: skip
                items = [*form.items(*approve), *more]
                sent = await ana.post(path, content=str(_params(items)), headers=kind)
                assert sent.status_code == 400, more
            missing = [item for item in form.items() if item[0] != "decision"]
            assert (await ana.post(path, content=str(_params(missing)), headers=kind)).status_code == 400
        assert await desk.states(record_id) == ["waiting"]

    run(work)


def _params(items: list[tuple[str, str]]) -> Any:
    import httpx

    return httpx.QueryParams(items)


def test_a_post_costs_as_many_statements_whatever_the_record_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    from codemode.stores.transaction import Session

    counted = {"statements": 0}
    for name in ("_execute", "execute_many"):
        real = getattr(Session, name)

        def counting(self: Any, *args: Any, _real: Any = real, **named: Any) -> Any:
            counted["statements"] += 1
            return _real(self, *args, **named)

        monkeypatch.setattr(Session, name, counting)

    async def cost(calls: int, label: str) -> int:
        desk = CardDesk([keeping(SCHEMA, [])])
        js = f"return await Promise.all(Array.from({{ length: {calls} }}, () => tools.take({json.dumps(VALUE)})))"
        record_id = await desk.pause(js)
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("/cents", "8")
            counted["statements"] = 0
            assert (await form.press(ana, label)).status_code in (200, 303)
            return counted["statements"]

    async def work() -> None:
        for label in ("Approve with changes", "Deny", "Show changes"):
            few, many = await cost(1, label), await cost(30, label)
            assert few == many > 0

    run(work)
