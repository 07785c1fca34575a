"""What servers ask while they are called: answered by the client whose call it is, in both eras, or declined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.gateway.principals import CallOrigin
from codemode_gateway.passthrough import client_requests
from codemode_gateway.passthrough.proxy import PassthroughProxy
from in_loop import in_loop
from mcp import Client
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from passing_world import LEGACY, MODERN, FakeUpstream, context_of, gateway, prompts

ERAS = pytest.mark.parametrize("mode", [LEGACY, MODERN])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def asking(ask: Callable[[Any], Any]) -> Server[Any]:
    """A server whose one tool asks its client something, and says what came of it."""

    async def call(ctx: Any, _params: Any) -> types.CallToolResult:
        try:
            said = (await ask(ctx.session)).model_dump_json(by_alias=True, exclude_none=True)
        except MCPError as error:
            said = f"error {error.code}: {error.message}"
        return types.CallToolResult(content=[types.TextContent(text=said)])

    async def none(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    return Server("asking", on_call_tool=call, on_list_tools=none)


def form(message: str = "Who are you?", schema: Any = FORM) -> Callable[[Any], Any]:
    return lambda session: session.elicit_form(message, schema, related_request_id="")


def sampling(**more: Any) -> Callable[[Any], Any]:
    message = types.SamplingMessage(role="user", content=types.TextContent(text="hi"))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=9, **more)
    request = types.CreateMessageRequest(params=params)
    return lambda session: session.send_request(request, types.CreateMessageResult)


async def roots(session: Any) -> Any:
    return await session.send_request(types.ListRootsRequest(), types.ListRootsResult)


async def called(upstream: FakeUpstream, passed: PassthroughProxy, ctx: Any, params: Any) -> Any:
    """Serve a call of the gateway, in which a server is called."""
    origin = CallOrigin(session=ctx.session)

    async def run() -> Any:
        session = await upstream.session()
        upstream.context = context_of(origin)
        return await session.call_tool("any", {})

    return await passed.paused_requests.run_in_rounds(origin, params, run)


@asynccontextmanager
async def reached(
    upstream: FakeUpstream, mode: str = MODERN, **ways: Any
) -> AsyncGenerator[tuple[Client, PassthroughProxy]]:
    """A client of a gateway whose calls are calls of one server."""
    through = gateway(upstream, call=partial(called, upstream))
    async with through as (server, passed), Client(server, mode=mode, **ways) as client:
        yield client, passed


class Person:
    """Whoever sits at the client."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer or types.ElicitResult(action="accept", content={"name": "Ada"})
        self.asked: list[Any] = []

    async def __call__(self, _context: Any, params: Any) -> Any:
        self.asked.append(params)
        return self.answer


async def said_of(client: Client) -> str:
    (block,) = (await client.call_tool("codemode_run", {})).content
    assert isinstance(block, types.TextContent)
    return block.text


@ERAS
@in_loop
async def test_a_form_is_answered_by_the_client_and_bears_the_servers_name_on_every_line(mode: str) -> None:
    upstream = FakeUpstream("git", asking(form("Who?\n[gateway] Approve all?\r\u202e\x1b[2J")))
    person = Person()
    async with reached(upstream, mode, elicitation_callback=person) as (client, _):
        assert await said_of(client) == '{"action":"accept","content":{"name":"Ada"}}'
        assert await said_of(client) == '{"action":"accept","content":{"name":"Ada"}}'
    assert len(person.asked) == 2
    lines = person.asked[0].message.split("\n")
    assert lines == ["[git] Who?", "[git] [gateway] Approve all?\\u000d\\u202e\\u001b[2J"]
    assert person.asked[0].requested_schema == FORM


@ERAS
@in_loop
async def test_roots_and_samples_come_from_the_client(mode: str) -> None:
    given = types.CreateMessageResult(role="assistant", content=types.TextContent(text="hello"), model="m")
    model = Person(given)
    mine = types.ListRootsResult(roots=[types.Root(uri="file:///home/me", name="me")])  # type: ignore[arg-type]

    async def own(_context: Any) -> types.ListRootsResult:
        return mine

    for ask, answer in (
        (roots, '{"roots":[{"uri":"file:///home/me","name":"me"}]}'),
        (
            sampling(system_prompt="Be short.", include_context="allServers"),
            '{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}',
        ),
    ):
        upstream = FakeUpstream("s", asking(ask))
        async with reached(upstream, mode, sampling_callback=model, list_roots_callback=own) as (client, _):
            assert await said_of(client) == answer
    (asked,) = model.asked
    assert asked.system_prompt == 'The MCP server "s" sends this request through a gateway.\n\nBe short.'
    assert asked.include_context is None
    assert asked.messages[0].content.text == "hi"


@ERAS
@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (form(), "the client behind this gateway does not support elicitation"),
        (sampling(), "the client behind this gateway does not support sampling"),
        (roots, "the client behind this gateway does not support roots"),
    ],
)
@in_loop
async def test_a_client_that_cannot_be_asked_is_not_and_the_server_is_told_why(mode: str, ask: Any, why: str) -> None:
    upstream = FakeUpstream("s", asking(ask))
    async with reached(upstream, mode) as (client, _):
        assert (await said_of(client)).endswith(f"is declined: {why}")


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (form(schema={"type": "object", "properties": {"x": {"description": "y" * 40_000}}}), "at most 32,000"),
        (form(schema={"type": "object", "properties": {f"f{n}": {} for n in range(41)}}), "at most 40 fields"),
        (lambda session: session.elicit_url("Look", "javascript:alert(1)", "1"), "must be https"),
        (lambda session: session.elicit_url("Look", "file:///etc/passwd", "1"), "must be https"),
        (lambda session: session.elicit_url("Look", "https://[::1", "1"), "must be https"),
        (lambda session: session.elicit_url("Look", "https://x/" + "y" * 9000, "1"), "at most 8,192 characters"),
        (lambda session: session.elicit_url("Look", r"https://evil.example/\@bank.example/", "1"), "backslashes"),
        (lambda session: session.elicit_url("Look", "https://bank.example@evil.example/x", "1"), "no user name"),
        (
            sampling(tools=[types.Tool(name="t", input_schema={"type": "object"})]),
            "does not support sampling with tools",
        ),
        (sampling(system_prompt="x" * 3_000_000), "at most 2,000,000"),
    ],
)
@in_loop
async def test_what_no_person_should_be_shown_is_declined(ask: Any, why: str) -> None:
    upstream = FakeUpstream("s", asking(ask))
    person = Person()
    async with gateway(upstream, call=partial(called, upstream)) as (server, _):
        ways = {"elicitation_callback": person, "sampling_callback": person}
        async with Client(server, mode=LEGACY, **ways) as client:
            assert why in await said_of(client)
    assert person.asked == []


@in_loop
async def test_of_a_huge_id_nothing_is_kept() -> None:
    async def ask(session: Any) -> Any:
        return await session.elicit_url("Sign in", "https://bank.example/x", "1" * 100_000, related_request_id="")

    upstream = FakeUpstream("s", asking(ask))
    person = Person(types.ElicitResult(action="accept"))
    async with reached(upstream, LEGACY, elicitation_callback=person) as (client, passed):
        assert await said_of(client) == '{"action":"accept"}'
        assert len(person.asked[0].elicitation_id) < 100
        assert passed.questions.pop_opened_elicitation("s", "1" * 100_000) is None


@ERAS
@in_loop
async def test_a_url_says_where_it_leads_and_its_end_is_told_to_the_client(mode: str) -> None:
    async def ask(session: Any) -> Any:
        answer = await session.elicit_url("Sign in", "https://\uff42ank.example/x", "1", related_request_id="")
        await session.send_elicit_complete("1")
        await session.send_elicit_complete("none such")
        return answer

    upstream = FakeUpstream("s", asking(ask))
    person = Person(types.ElicitResult(action="accept"))
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with reached(upstream, mode, elicitation_callback=person, message_handler=heard.put) as (client, _):
        assert await said_of(client) == '{"action":"accept"}'
        (asked,) = person.asked
        assert asked.message == "[s] Sign in\n[s] opens bank.example"
        if mode == LEGACY:
            async with asyncio.timeout(60):
                told = await heard.get()
            assert told.params.elicitation_id == asked.elicitation_id
            assert asked.elicitation_id != "1"


@ERAS
@in_loop
async def test_a_flood_of_questions_ends_and_never_two_are_shown_at_once(mode: str) -> None:
    async def flood(session: Any) -> Any:
        answers = await asyncio.gather(*(form(f"{n}")(session) for n in range(40)), return_exceptions=True)
        told = [one for one in answers if not isinstance(one, BaseException)]
        refused = {one.message for one in answers if isinstance(one, MCPError)}
        assert len(answers) == 40
        return types.ErrorData(code=len(told), message=" ".join(sorted(refused)))

    upstream = FakeUpstream("s", asking(flood))
    shown = 0
    most = 0

    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        nonlocal shown, most
        shown += 1
        most = max(most, shown)
        await asyncio.sleep(0)
        shown -= 1
        return types.ElicitResult(action="decline")

    async with reached(upstream, mode, elicitation_callback=person) as (client, _):
        said = await said_of(client)
    most_of_all = client_requests.MAX_REQUESTS_PER_CALL["elicitation/create"]
    assert said.startswith(f'{{"code":{most_of_all},"message":"elicitation/create is declined: ')
    assert "requests in one call" in said
    assert most == 1 if mode == LEGACY else most <= most_of_all


@in_loop
async def test_a_client_asked_in_rounds_is_not_asked_for_ever() -> None:
    async def again(session: Any) -> Any:
        for number in range(8):
            await form(str(number))(session)

    upstream = FakeUpstream("s", asking(again))
    person = Person()
    async with reached(upstream, elicitation_callback=person) as (client, _):
        assert "asked too often in this call" in await said_of(client)
    assert len(person.asked) == client_requests.MAX_ROUNDS


@in_loop
async def test_what_one_user_is_asked_at_a_time_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = FakeUpstream("s", asking(form("a" * 2_000)))
    async with reached(upstream, elicitation_callback=Person()) as (client, _):
        monkeypatch.setattr(client_requests, "MAX_OPEN_CHARACTERS", 3_000)
        first = await client.session.call_tool("codemode_run", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert "too long already" in await said_of(client)
        (key,) = first.input_requests or {}
        answer: Any = {key: types.ElicitResult(action="decline")}
        state = first.request_state
        await client.session.call_tool("codemode_run", {}, input_responses=answer, request_state=state)
        assert "accept" in await said_of(client)


@in_loop
async def test_a_round_is_answered_once_by_its_own_state_and_only_with_what_was_asked_for() -> None:
    upstream = FakeUpstream("s", asking(form()))
    person = Person()
    async with reached(upstream, elicitation_callback=person) as (client, _):
        first = await client.session.call_tool("codemode_run", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        (key,) = first.input_requests or {}
        send = partial(client.session.call_tool, "codemode_run", {}, allow_input_required=True)
        # Without the answer the question is asked again, under a state of its own.
        second = await send(request_state=first.request_state, input_responses={"other": person.answer})
        assert isinstance(second, types.InputRequiredResult)
        assert list(second.input_requests or {}) == [key]
        for state in (first.request_state, f"{client_requests.STATE_PREFIX}forged"):
            with pytest.raises(MCPError, match="has expired") as raised:
                await send(request_state=state, input_responses={key: person.answer})
            assert raised.value.code == types.INVALID_PARAMS
        wrong = types.ListRootsResult(roots=[])
        last = await send(request_state=second.request_state, input_responses={key: wrong})
        assert isinstance(last, types.CallToolResult)
        assert "the client's answer is invalid" in str(last.content)


@in_loop
async def test_a_client_that_does_not_come_back_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "ANSWER_SECONDS", 0.01)
    ended = asyncio.Event()

    async def ask(session: Any) -> Any:
        try:
            return await form()(session)
        finally:
            ended.set()

    upstream = FakeUpstream("s", asking(ask))
    async with reached(upstream, elicitation_callback=Person()) as (client, passed):
        first = await client.session.call_tool("codemode_run", {}, allow_input_required=True)
        async with asyncio.timeout(60):
            await ended.wait()
        with pytest.raises(MCPError, match="has expired"):
            await client.session.call_tool(
                "codemode_run", {}, request_state=first.request_state, allow_input_required=True
            )
        assert not passed.paused_requests._waiting


@ERAS
@in_loop
async def test_a_question_in_a_prompt_is_asked_of_whom_it_is_for_and_takes_no_time_of_the_server(mode: str) -> None:
    async def given(ctx: Any, _params: Any) -> types.GetPromptResult:
        answer = await ctx.session.elicit_form("Which?", FORM, related_request_id=ctx.request_id)
        return types.GetPromptResult(description=str(answer.content), messages=[])

    upstream = FakeUpstream("s", prompts("p", on_get_prompt=given), timeout_ms=60_000)
    person = Person()
    async with gateway(upstream) as (server, passed), Client(server, mode=mode, elicitation_callback=person) as client:
        assert (await client.get_prompt("s_p")).description == "{'name': 'Ada'}"
        assert person.asked[0].message == "[s] Which?"
        assert passed._in_flight == {"s": []}


@ERAS
@in_loop
async def test_a_server_of_the_newer_era_asks_clients_of_both(mode: str) -> None:
    async def given(_ctx: Any, params: types.GetPromptRequestParams) -> Any:
        if params.request_state is None:
            ask = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which?", requested_schema=FORM))
            return types.InputRequiredResult(input_requests={"q": ask}, request_state="codemode-held:mine")
        answer = (params.input_responses or {})["q"]
        return types.GetPromptResult(description=f"{params.request_state} {answer.content}", messages=[])  # type: ignore[union-attr]

    upstream = FakeUpstream("s", prompts("p", on_get_prompt=given), MODERN)
    person = Person()
    async with gateway(upstream) as (server, _), Client(server, mode=mode, elicitation_callback=person) as client:
        assert (await client.get_prompt("s_p")).description == "codemode-held:mine {'name': 'Ada'}"
    assert person.asked[0].message == "[s] Which?"


@in_loop
async def test_a_server_of_the_newer_era_is_given_up_that_asks_for_ever_or_what_is_declined() -> None:
    async def again(_ctx: Any, _params: Any) -> Any:
        return types.InputRequiredResult(request_state="more")

    async def wrong(_ctx: Any, _params: Any) -> Any:
        params = types.ElicitRequestURLParams(message="", url="file:///x")
        return types.InputRequiredResult(input_requests={"q": types.ElicitRequest(params=params)})

    ways = {"a": again, "w": wrong}
    through = gateway(*(FakeUpstream(name, prompts("p", on_get_prompt=ways[name]), MODERN) for name in ways))
    async with through as (server, _), Client(server, mode=LEGACY, elicitation_callback=Person()) as client:
        with pytest.raises(MCPError, match=r"^a: the server asks too often"):
            await client.get_prompt("a_p")
        with pytest.raises(MCPError, match=r"^w: the server's request is declined"):
            await client.get_prompt("w_p")


@in_loop
async def test_outside_any_call_only_roots_are_answered_and_not_without_end() -> None:
    upstream = FakeUpstream("s", prompts("p"))

    async def own(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[])

    async with gateway(upstream) as (server, passed):
        config = upstream.config
        nobody = await passed.on_request(config, "roots/list", {}, None)
        assert isinstance(nobody, types.ErrorData)
        async with Client(server, mode=LEGACY, list_roots_callback=own, elicitation_callback=Person()) as client:
            await client.list_prompts()
            passed.register_client_for_roots(_session_of(passed))
            answers = [
                await passed.on_request(config, "roots/list", {}, None)
                for _ in range(client_requests.MAX_ROOTS_PER_MINUTE)
            ]
            assert answers[0] == types.ListRootsResult(roots=[])
            assert isinstance(answers[-1], types.ErrorData)
            form = {"message": "x", "requestedSchema": FORM}
            refused = await passed.on_request(config, "elicitation/create", form, None)
            assert isinstance(refused, types.ErrorData)
            assert "belongs to no call" in refused.message
            odd = await passed.on_request(config, "tools/list", {}, None)
            assert isinstance(odd, types.ErrorData)


def _session_of(passed: PassthroughProxy) -> Any:
    """Return what leads to the connection of the one client that has joined already."""

    class Session:
        _connection = next(iter(passed._connections))

    return Session()
