"""Prompts, resources and templates of several servers as one list: distinct names, whole pages, no one in the way."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.passthrough import proxy, uri_routing
from in_loop import in_loop
from mcp import Client
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from passing_world import LEGACY, MODERN, FakeUpstream, gateway, prompts, resources, text_of

ERAS = pytest.mark.parametrize("mode", [LEGACY, MODERN])


@ERAS
@in_loop
async def test_prompts_of_all_servers_have_names_of_their_own_and_lead_to_their_servers(mode: str) -> None:
    a, b = FakeUpstream("a", prompts("b_c", "plain")), FakeUpstream("a_b", prompts("c", "odd name"), MODERN)
    async with gateway(a, b) as (server, _), Client(server, mode=mode) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
        assert len(set(names)) == 4
        assert names[:2] == ["a_b_c", "a_plain"]
        texts: list[str] = []
        for name in names:
            (message,) = (await client.get_prompt(name, {"x": "1"})).messages
            assert isinstance(message.content, types.TextContent)
            texts.append(message.content.text)
    assert texts == ["b_c {'x': '1'}", "plain {'x': '1'}", "c {'x': '1'}", "odd name {'x': '1'}"]


@ERAS
@in_loop
async def test_a_name_is_understood_by_a_gateway_that_has_listed_nothing(mode: str) -> None:
    async with gateway(FakeUpstream("one", prompts("p"))) as (server, _), Client(server, mode=mode) as client:
        assert len((await client.get_prompt("one_p")).messages) == 1
        with pytest.raises(MCPError, match="there is no prompt 'one_q'"):
            await client.get_prompt("one_q")
        with pytest.raises(MCPError, match="there is no prompt 'other_p'"):
            await client.get_prompt("other_p")


@ERAS
@in_loop
async def test_equal_uris_are_told_apart_and_others_stay_as_they_are(mode: str) -> None:
    a = FakeUpstream("a", resources("A", "test://same", "ui://a/view", templates=["test://{x}/same"]))
    b = FakeUpstream("b", resources("B", "test://same", "test://b#part", templates=["test://{x}/same"]))
    c = FakeUpstream("c", resources("C", "test://b#part"))
    async with gateway(a, b, c) as (server, _), Client(server, mode=mode) as client:
        uris = [one.uri for one in (await client.list_resources()).resources]
        assert len(set(uris)) == 5
        assert uris[0] == "test://same"
        assert "ui://a/view" in uris
        assert [await text_of(client, uri) for uri in uris] == [
            "A test://same",
            "A ui://a/view",
            "B test://same",
            "B test://b#part",
            "C test://b#part",
        ]
        first, second = (one.uri_template for one in (await client.list_resource_templates()).resource_templates)
        assert await text_of(client, first.replace("{x}", "7")) == "A test://7/same"
        assert await text_of(client, second.replace("{x}", "7")) == "B test://7/same"


@in_loop
async def test_no_server_takes_the_uri_of_another_while_that_is_away_or_by_naming_it() -> None:
    first = FakeUpstream("first", resources("mine", "test://x"))
    second = FakeUpstream("second", resources("theirs", "test://x", "test://x#server=first"))
    async with gateway(first, second) as (server, _), Client(server) as client:
        await client.list_resources()
        first.failure = OSError("gone")
        await first.aclose()
        uris = [one.uri for one in (await client.list_resources()).resources]
        assert uris.count("test://x") == 1
        with pytest.raises(MCPError, match=r"^first: the server cannot be reached$"):
            await client.read_resource("test://x")
        assert await text_of(client, uris[-1]) == "theirs test://x#server=first"


@in_loop
async def test_what_no_list_has_leads_to_the_one_server_that_it_can_be_of() -> None:
    a = FakeUpstream("a", resources("A", "file:///a/1", templates=["db://{table}/rows/{id}", "db://{all}"]))
    b = FakeUpstream("b", resources("B", "mail://box/1", templates=["db://{table}/cols"]))
    async with gateway(a, b) as (server, _), Client(server) as client:
        assert await text_of(client, "db://t/cols") == "B db://t/cols"
        assert await text_of(client, "db://t/rows/3") == "A db://t/rows/3"
        assert await text_of(client, "mail://box/2") == "B mail://box/2"
        with pytest.raises(MCPError, match="no server has the resource 'other://x'"):
            await client.read_resource("other://x")


@in_loop
async def test_what_items_say_of_themselves_is_passed_on_whole() -> None:
    icon = types.Icon(src="https://example.org/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")
    notes = types.Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
    meta = {"ui": {"prefersBorder": True}, "example.org/x": [1, {"y": None}]}
    prompt = types.Prompt(
        name="p", title="P", arguments=[types.PromptArgument(name="x", required=True)], icons=[icon], _meta=meta
    )
    resource = types.Resource(
        name="r",
        uri="ui://r",
        mime_type="text/html;profile=mcp-app",
        size=3,
        icons=[icon],
        annotations=notes,
        _meta=meta,
    )

    async def of_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[prompt])

    async def of_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[resource])

    one = FakeUpstream("s", Server("s", on_list_prompts=of_prompts, on_list_resources=of_resources))
    async with gateway(one) as (server, _), Client(server) as client:
        assert (await client.list_prompts()).prompts == [prompt.model_copy(update={"name": "s_p"})]
        assert (await client.list_resources()).resources == [resource]


@ERAS
@in_loop
async def test_pages_come_to_the_whole_list_and_a_cursor_of_another_list_is_refused(mode: str) -> None:
    a = FakeUpstream("a", prompts(*(f"p{number}" for number in range(uri_routing.MAX_ITEMS + 3))))
    b = FakeUpstream("b", resources("B", *(f"test://{number}" for number in range(2 * uri_routing.MAX_ITEMS))))
    async with gateway(a, b) as (server, _), Client(server, mode=mode) as client:
        first = await client.list_prompts()
        assert first.next_cursor is not None
        second = await client.list_prompts(cursor=first.next_cursor)
        assert second.next_cursor is None
        names = [one.name for one in [*first.prompts, *second.prompts]]
        assert names == [f"a_p{number}" for number in range(uri_routing.MAX_ITEMS + 3)]
        for wrong in (first.next_cursor[:-1], "x" * 5000, "é", ""):
            with pytest.raises(MCPError, match="start again without a cursor") as raised:
                await client.list_prompts(cursor=wrong)
            assert raised.value.code == types.INVALID_PARAMS
        with pytest.raises(MCPError, match="start again without a cursor"):
            await client.list_resources(cursor=first.next_cursor)


def _endless(pages_of: list[int]) -> Server[Any]:
    async def listed(_ctx: Any, params: Any) -> types.ListPromptsResult:
        pages_of.append(1)
        number = len(pages_of)
        cursor = None if params is None else params.cursor
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=f"p{number}-{at}", description="x" * 1000) for at in range(50)],
            next_cursor=f"{cursor}{number}"[-20:],
        )

    return Server("endless", on_list_prompts=listed)


def _repeating() -> Server[Any]:
    async def listed(_ctx: Any, _params: Any) -> types.ListPromptsResult:
        same = [types.Prompt(name="same", title=str(number)) for number in range(3)]
        return types.ListPromptsResult(prompts=same, next_cursor="again")

    return Server("repeating", on_list_prompts=listed)


@in_loop
async def test_lists_without_end_and_items_without_measure_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "MAX_ITEMS", 120)
    asked: list[int] = []

    async def large(_ctx: Any, _params: Any) -> types.ListPromptsResult:
        huge = types.Prompt(name="huge", description="x" * proxy.MAX_ITEM_CHARACTERS)
        return types.ListPromptsResult(prompts=[huge, types.Prompt(name="small")])

    servers = _endless(asked), _repeating(), Server("large", on_list_prompts=large)
    upstreams = [FakeUpstream(name, one) for name, one in zip(("e", "r", "l"), servers, strict=True)]
    async with gateway(*upstreams) as (server, _), Client(server) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
    assert len([name for name in names if name.startswith("e_")]) == 120
    assert len(asked) == 3
    assert names[120:] == ["r_same", "l_small"]


@in_loop
async def test_a_server_that_is_broken_slow_or_wrong_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "LIST_TIMEOUT_SECONDS", 0.05)
    may_answer = asyncio.Event()

    async def slow(_ctx: Any, _params: Any) -> types.ListPromptsResult:
        await may_answer.wait()
        return types.ListPromptsResult(prompts=[types.Prompt(name="late")])

    async def wrong(_ctx: Any, _params: Any) -> dict[str, Any]:
        return {"prompts": "none"}

    upstreams = [
        FakeUpstream("broken", prompts("x")),
        FakeUpstream("slow", Server("slow", on_list_prompts=slow)),
        FakeUpstream("wrong", Server("wrong", on_list_prompts=wrong)),  # type: ignore[arg-type]
        FakeUpstream("good", prompts("x")),
    ]
    upstreams[0].failure = OSError("no such command")
    changes: list[Any] = []
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        changes.append(message)
        changed.set()

    async with gateway(*upstreams) as (server, _), Client(server, mode=LEGACY, message_handler=heard) as client:

        async def become(names: list[str]) -> None:
            while [one.name for one in (await client.list_prompts()).prompts] != names:  # noqa: ASYNC110 - it says nothing
                await asyncio.sleep(0.01)  # the good one may be slow too, on a busy machine

        async with asyncio.timeout(60):
            await become(["good_x"])
            may_answer.set()
            await changed.wait()
            assert isinstance(changes[0], types.PromptListChangedNotification)
            await become(["slow_late", "good_x"])


@ERAS
@in_loop
async def test_a_server_is_started_only_where_it_may_have_what_is_asked_for(mode: str) -> None:
    a, b = FakeUpstream("a", prompts("x")), FakeUpstream("b", resources("B", "test://b"))
    for one in (a, b):
        await one.session()
        await one.aclose()
        one.starts = 0
    async with gateway(a, b) as (server, _), Client(server, mode=mode) as client:
        await client.list_prompts()
        assert (a.starts, b.starts) == (1, 0)
        await a.aclose()
        await client.list_prompts()
        assert (a.starts, b.starts) == (1, 0)


@ERAS
@in_loop
async def test_what_is_announced_is_what_some_server_may_have(mode: str) -> None:
    a, b = FakeUpstream("a", prompts("x")), FakeUpstream("b", prompts("y"))
    async with gateway(a, b) as (server, _):
        async with Client(server, mode=mode) as client:
            assert (a.starts, b.starts) == (0, 0)
            assert client.server_capabilities.resources is not None
        await a.session()
        await b.session()
        async with Client(server, mode=mode) as client:
            said = client.server_capabilities
    assert said.prompts == types.PromptsCapability(list_changed=True)
    assert (said.resources, said.completions) == (None, None)


@in_loop
async def test_completion_asks_the_server_of_the_prompt_or_template_under_its_own_name() -> None:
    asked: list[Any] = []

    async def complete(_ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        asked.append(params)
        return types.CompleteResult(completion=types.Completion(values=["1", "2"], total=9, has_more=True))

    with_all = FakeUpstream("a", prompts("p", on_completion=complete))
    other = FakeUpstream("b", resources("B", templates=["test://{x}"], on_completion=complete))
    plain = FakeUpstream("c", prompts("q"))
    async with gateway(with_all, other, plain) as (server, _), Client(server) as client:
        given = await client.complete(types.PromptReference(name="a_p"), {"name": "x", "value": "v"}, {"k": "1"})
        assert given.completion == types.Completion(values=["1", "2"], total=9, has_more=True)
        assert asked[-1].ref == types.PromptReference(name="p")
        assert asked[-1].context.arguments == {"k": "1"}
        await client.complete(types.ResourceTemplateReference(uri="test://{x}"), {"name": "x", "value": ""})
        assert asked[-1].ref == types.ResourceTemplateReference(uri="test://{x}")
        none = await client.complete(types.PromptReference(name="c_q"), {"name": "x", "value": ""})
        assert none.completion.values == []
        with pytest.raises(MCPError, match="there is no prompt"):
            await client.complete(types.PromptReference(name="zz"), {"name": "x", "value": ""})


@in_loop
async def test_links_in_prompts_lead_back_to_their_server() -> None:
    async def given(_ctx: Any, _params: Any) -> types.GetPromptResult:
        link = types.ResourceLink(name="l", uri="test://same")
        unlisted = types.EmbeddedResource(resource=types.TextResourceContents(uri="odd://unlisted", text=""))
        return types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=one) for one in (link, unlisted)]
        )

    a = FakeUpstream("a", resources("A", "test://same"))
    more = resources("B", "test://b")
    both = prompts("p", on_get_prompt=given)
    for method in ("resources/list", "resources/read", "resources/templates/list"):
        entry = more.get_request_handler(method)
        assert entry is not None
        both.add_request_handler(method, entry.params_type, entry.handler)
    async with gateway(a, FakeUpstream("b", both)) as (server, _), Client(server) as client:
        await client.list_resources()
        link, embedded = (one.content for one in (await client.get_prompt("b_p")).messages)
        assert isinstance(link, types.ResourceLink)
        assert isinstance(embedded, types.EmbeddedResource)
        assert await text_of(client, link.uri) == "B test://same"
        assert await text_of(client, embedded.resource.uri) == "B odd://unlisted"


@in_loop
async def test_a_server_that_never_answers_is_given_up_and_its_errors_name_it() -> None:
    async def never(_ctx: Any, _params: Any) -> types.GetPromptResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def refused(_ctx: Any, _params: Any) -> types.GetPromptResult:
        raise MCPError(-32050, "the key is s3cret-value", {"key": "s3cret-value"})

    slow = FakeUpstream("slow", prompts("p", on_get_prompt=never), timeout_ms=50)
    wrong = FakeUpstream("wrong", prompts("p", on_get_prompt=refused))
    hidden = gateway(slow, wrong, hide=lambda text: text.replace("s3cret-value", "[secret]"))
    async with hidden as (server, _), Client(server) as client:
        with pytest.raises(MCPError, match=r"^slow: it did not answer within 50 ms$"):
            await client.get_prompt("slow_p")
        with pytest.raises(MCPError, match=r"^wrong: the key is \[secret\]$") as raised:
            await client.get_prompt("wrong_p")
    assert raised.value.code == -32050
    assert raised.value.data is None


@pytest.mark.parametrize(("mode", "said", "told"), [(LEGACY, -32002, -32002), (MODERN, -32002, -32602)])
@in_loop
async def test_what_a_server_has_not_is_told_in_the_words_of_the_clients_revision(
    mode: str, said: int, told: int
) -> None:
    async def read(_ctx: Any, params: Any) -> Any:
        raise MCPError(said, "gone", {"path": "secret"})

    one = FakeUpstream("one", resources("A", templates=["db://{x}"], on_read_resource=read))
    async with gateway(one) as (server, _), Client(server, mode=mode) as client:
        with pytest.raises(MCPError, match="gone") as raised:
            await client.read_resource("db://t")
    assert (raised.value.code, raised.value.error.data) == (told, {"uri": "db://t"})
