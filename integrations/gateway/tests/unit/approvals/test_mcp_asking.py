"""Real clients of both eras, in process: the person is asked, and what they answer is what runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from approval_world import (
    IMPORT,
    ONE,
    TWO,
    Shop,
    accept,
    answer_of,
    asked_input,
    begun,
    client_of,
    codes,
    gone_on,
    hosts,
)
from codemode_gateway.approvals.remembered_answers import RememberedAnswers
from codemode_gateway.gateway.principals import Principal
from mcp import Client
from waiting import within

ERAS = ["auto", "legacy"]


@pytest.mark.parametrize("mode", ERAS)
def test_each_call_of_a_bundle_is_asked_about_alone_and_exactly_what_was_answered_runs(mode: str) -> None:
    async def scenario() -> None:
        asked: list[Any] = []

        async def person(_ctx: Any, params: Any) -> Any:
            asked.append(params)
            order = asked_input(params)["order"]
            return accept(input=json.dumps({"order": order, "cents": 300})) if order == "a" else accept("deny")

        async with hosts() as (shop, _, host), Client(host.server, mode=mode, elicitation_callback=person) as client:
            answer = answer_of(await client.call_tool("codemode_run", {"code": TWO}))
            assert shop.done == ["stock", ("a", 300)]
            assert answer["result"][0] == "refunded 300 for a"
            code, hint = answer["result"][1]
            assert code == "APPROVAL_DENIED"
            assert "not try" in hint
        assert sorted(asked_input(one)["order"] for one in asked) == ["a", "b"]
        shown = asked[0].message
        assert "Server: shop" in shown
        assert "Tool: refund" in shown
        assert '"cents": 500' in shown
        assert "Line 3 of the program: const told" in shown

    within(scenario())


@pytest.mark.parametrize("mode", ERAS)
def test_an_edit_that_does_not_fit_is_asked_about_again_with_what_is_wrong_and_then_denied(mode: str) -> None:
    async def scenario() -> None:
        messages: list[str] = []

        async def person(_ctx: Any, params: Any) -> Any:
            messages.append(params.message)
            return accept(input=["{", '{"order": 5}', "[]", '{"order": "c"}'][len(messages) - 1])

        async with hosts() as (shop, _, host), Client(host.server, mode=mode, elicitation_callback=person) as client:
            answer = answer_of(await client.call_tool("codemode_run", {"code": ONE}))
            assert answer["result"] == "APPROVAL_DENIED"
            assert shop.done == []
        assert len(messages) == 3
        assert "Problem" not in messages[0]
        assert "not JSON" in messages[1]
        assert "order: expected string" in messages[2]

    within(scenario())


@pytest.mark.parametrize("mode", ERAS)
def test_an_answer_for_the_session_or_for_always_holds_for_later_calls_and_not_for_another_definition(
    mode: str,
) -> None:
    async def scenario(tmp_path: Path, scope: str) -> None:
        asked: list[str] = []

        async def person(_ctx: Any, params: Any) -> Any:
            asked.append(params.message)
            return accept(scope)

        remembered = RememberedAnswers(tmp_path)
        code = f'{IMPORT}for (const order of "abc") await refund({{ order }});'
        async with hosts(remembered=remembered) as (shop, _, host):
            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                await client.call_tool("codemode_run", {"code": code})
                await client.call_tool("codemode_run", {"code": code})
            assert len(shop.done) == 6
            assert len(asked) == 1
        async with (
            hosts(remembered=RememberedAnswers(tmp_path)) as (shop, _, host),
            Client(host.server, mode=mode, elicitation_callback=person) as client,
        ):
            await client.call_tool("codemode_run", {"code": ONE})
        assert len(asked) == (1 if scope == "always" else 2)
        changed = Shop()
        changed.tools["refund"].description = "Refunds, and more."
        async with (
            hosts(remembered=RememberedAnswers(tmp_path), shop=changed) as (_, _, host),
            Client(host.server, mode=mode, elicitation_callback=person) as client,
        ):
            await client.call_tool("codemode_run", {"code": ONE})
        assert len(asked) == (2 if scope == "always" else 3)
        (kept,) = RememberedAnswers(tmp_path).list_permanent_answers("local") or (None,)
        assert (kept is not None) == (scope == "always")

    for scope in ("session", "always"):
        with tempfile.TemporaryDirectory() as folder:
            within(scenario(Path(folder), scope))


@pytest.mark.parametrize("mode", ERAS)
def test_without_a_session_an_answer_for_one_is_for_one_call(mode: str) -> None:
    async def scenario() -> None:
        offered: list[Any] = []

        async def person(_ctx: Any, params: Any) -> Any:
            offered.append(params.requested_schema["properties"]["decision"]["enum"])
            return accept("session")

        async with hosts(over_http=True) as (shop, _, host):
            for _client in range(2):
                async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                    await client.call_tool("codemode_run", {"code": ONE})
        assert len(shop.done) == 2
        has_session = mode == "legacy"
        assert [("session" in one) for one in offered] == [has_session] * (1 if has_session else 2)

    within(scenario())


def test_a_call_goes_on_at_a_host_that_has_never_seen_it_exactly_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            hosts(2, path=tmp_path / "store.sqlite") as (shop, _, one, other),
            client_of(one) as a,
            client_of(other) as b,
        ):
            first = await begun(a, TWO)
            replies = {key: accept() for key in first.input_requests}
            answers = [answer_of(await gone_on(client, TWO, first, replies)) for client in (b, a, b)]
            assert shop.done.count("stock") == 1
            assert len(shop.done) == 3
            assert answers[0]["result"] == answers[1]["result"] == answers[2]["result"]
            denied = {key: accept("deny") for key in first.input_requests}
            refused = answer_of(await gone_on(a, TWO, first, denied))
            assert codes(refused) == ["CONTINUATION_REFUSED"]
            assert len(shop.done) == 3

    within(scenario())


@pytest.mark.parametrize("which", ["code", "principal", "keys", "resume", "cut", "empty", "long", "of another kind"])
def test_a_state_that_is_not_for_this_call_is_refused(which: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        other = {"principal": Principal("eve")} if which == "principal" else {}
        other |= {"keys": "another key"} if which == "keys" else {}
        path = tmp_path / "store.sqlite"
        async with (
            hosts(path=path) as (shop, _, one),
            hosts(path=path, **other) as (theirs, _, two),
            client_of(one) as a,
            client_of(two) as b,
        ):
            first = await begun(a, ONE)
            state = first.request_state
            forged = {"cut": state[:-1], "empty": "", "long": state * 200, "of another kind": "[]"}.get(which, state)
            arguments = {"code": ONE + " "} if which == "code" else {"code": ONE}
            arguments = {"resume": "a" * 32} if which == "resume" else arguments
            replies = {key: accept() for key in first.input_requests}
            answer = await b.session.call_tool(
                "codemode_run",
                arguments,
                input_responses=replies,
                request_state=forged,
                allow_input_required=True,
            )
            [refused] = answer_of(answer)["diagnostics"]
            assert refused["code"] == "CONTINUATION_REFUSED"
            assert ("codemode.keys" in refused["message"]) == (which == "keys")
            assert shop.done == theirs.done == []

    within(scenario())


def test_a_first_call_with_answers_and_no_state_is_asked_like_any_other() -> None:
    async def scenario() -> None:
        async with hosts() as (shop, _, host), client_of(host) as client:
            first = await begun(client, ONE)
            replies = {key: accept() for key in first.input_requests}
            again = await client.session.call_tool(
                "codemode_run", {"code": ONE, "decision": "once"}, input_responses=replies, allow_input_required=True
            )
            assert again.input_requests
            assert shop.done == []

    within(scenario())


def test_a_reply_that_is_missing_or_unknown_is_asked_for_again() -> None:
    async def scenario() -> None:
        async with hosts() as (shop, _, host), client_of(host) as client:
            first = await begun(client, TWO)
            a, b = first.input_requests
            second = await gone_on(client, TWO, first, {"nobody": accept()})
            assert set(second.input_requests) == {a, b}
            third = await gone_on(client, TWO, second, {a: accept()})
            assert set(third.input_requests) == {b}
            assert len(shop.done) == 2
            answer = answer_of(await gone_on(client, TWO, third, {b: accept("deny")}))
            assert len(shop.done) == 2
            assert answer["result"][1][0] == "APPROVAL_DENIED"

    within(scenario())
