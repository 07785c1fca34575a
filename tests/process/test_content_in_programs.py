"""Images, audio and files of tools in programs: passed on, shown, kept over a pause, and never forged."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from pausing import PAUSING
from waiting import within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    Interrupt,
    MediaContent,
    Tool,
    ToolResult,
    create_code_mode_tool,
    run_code_mode,
    tool,
)
from codemode.errors import CodeModeSerializationError
from codemode.stores import SqliteInterruptStore
from codemode.types import ContentResult

PICTURE = MediaContent(b"\x89PNG" + b"x" * 1000, "image/png", name="a.png")
ROUND = """const shot = await tools.shot({});
const cut = await tools.cut({ image: shot.picture, to: 10 });
content(cut);
const facts = [Object.keys(shot.picture), Object.isFrozen(shot.picture), JSON.stringify([cut.bytes, cut])];
return { facts, same: (await tools.same({ of: cut })).of === cut, shot, size: await tools.size({ image: cut }) };"""


READ = '[10,{"kind":"image","mimeType":"image/png","bytes":10,"name":null}]'


class Tools:
    """Three tools that hand pictures on, and what they were given."""

    def __init__(self, *, gated: bool = False, picture: MediaContent = PICTURE) -> None:
        self.given: list[Any] = []
        self._picture = picture
        cut, size = tool(self.cut), tool(self.size)
        self.all: dict[str, Any] = {
            "shot": Tool("shot", execute=lambda _: {"picture": self._picture, "count": 1}),
            "cut": Tool("cut", execute=cut.execute, input_schema=cut.input_schema, needs_approval=gated),
            "same": Tool("same", execute=lambda given: given),
            "size": size,
        }

    def cut(self, image: MediaContent, to: int) -> MediaContent:
        self.given.append(image)
        return MediaContent(image.data[:to], image.mime_type)

    def size(self, image: MediaContent) -> int:
        self.given.append(image)
        return len(image.data)


def check(result: Any, tools: Tools) -> None:
    cut = MediaContent(PICTURE.data[:10], "image/png")
    assert isinstance(result, ContentResult)
    assert result.content == (cut,)
    assert result.value == {
        "facts": [["kind", "mimeType", "bytes", "name"], True, READ],
        "same": True,
        "shot": {"picture": PICTURE, "count": 1},
        "size": 10,
    }
    assert tools.given == [PICTURE, cut]


def test_pictures_go_through_tools_and_are_shown():
    tools = Tools()
    code_mode = create_code_mode_tool(tools.all)
    result = within(code_mode.execute({"js": ROUND}))
    check(result, tools)
    shown = code_mode.to_model_output(result)
    assert [one["type"] for one in shown["value"]] == ["text", "media", "media"]
    assert "iVBOR" not in shown["value"][0]["text"]
    assert "image: Content;" in code_mode.description
    assert code_mode.description.count("declare function content") == 1


def test_a_pause_keeps_them_and_shows_no_bytes():
    tools = Tools(gated=True)
    code_mode = create_code_mode_tool(tools.all, PAUSING)

    async def paused() -> None:
        interrupt = await code_mode.execute({"js": ROUND})
        place = {key: value for key, value in interrupt.input["image"].items() if not key.startswith("$")}
        assert place == PICTURE.description
        carried = Interrupt.from_dict(interrupt.to_dict())
        edited = {**interrupt.input, "image": {**interrupt.input["image"], "name": "forged.png"}}
        check(await code_mode.resume(carried, {"approved": True, "input": edited}), tools)
        check(await code_mode.resume(carried, {"approved": True, "input": edited}), tools)

    within(paused())


def place_in(interrupt: Interrupt) -> str:
    (part_id,) = (value for key, value in interrupt.input["image"].items() if key.startswith("$content:"))
    return part_id


def test_what_a_person_is_asked_about_is_named_by_its_bytes_and_so_is_the_question():
    """Whatever a run calls it: an answer to one picture must not fit another, where an engine runs a step again."""

    async def asked(picture: MediaContent) -> Interrupt:
        keeping = {"keys": ["k" * 32], "conversation_id": "thread"}
        code_mode = create_code_mode_tool(Tools(gated=True, picture=picture).all, {**PAUSING, "continuation": keeping})
        return await code_mode.execute({"js": ROUND}, call=CallContext(tool_call_id="call"))

    async def all_asked() -> list[Interrupt]:
        return [await asked(one) for one in (PICTURE, replace(PICTURE), MediaContent(PICTURE.data[::-1], "image/png"))]

    first, again, other = within(all_asked())
    assert place_in(first) == place_in(again) == PICTURE.id
    assert first.interrupt_id == again.interrupt_id
    assert other.interrupt_id != first.interrupt_id


def test_a_pause_that_carries_content_goes_on_where_a_store_keeps_it():
    tools, store = Tools(gated=True), Kept()
    js = (
        "const shot = await tools.shot({}); await tools.cut({ image: shot.picture, to: 1 });"
        " await tools.cut({ image: shot.picture, to: 2 }); return [shot.picture, await tools.shot({})];"
    )
    carrying = create_code_mode_tool(tools.all, PAUSING)
    keeping = create_code_mode_tool(tools.all, {**PAUSING, "continuation": {"content_store": store}})

    async def paused() -> Any:
        first = await carrying.execute({"js": js})
        second = await keeping.resume(first, {"approved": True})
        assert place_in(first) == place_in(second) == PICTURE.id
        assert PICTURE.data in [data for _, data in store.parts.values()]
        return await keeping.resume(Interrupt.from_dict(second.to_dict()), {"approved": True})

    assert within(paused()) == [PICTURE, {"picture": PICTURE, "count": 1}]
    assert tools.given == [PICTURE, PICTURE]


def test_what_is_too_large_fails_and_names_the_option():
    tools = Tools(gated=True, picture=MediaContent(b"x" * (1 << 21), "image/png"))
    options = {**PAUSING, "execution_policy": {"max_content_part_bytes": 1 << 20}}
    js = "try { await tools.shot({}) } catch (error) { return [error.code, error.message] }"
    code, message = within(run_code_mode(js, tools.all, options=options))
    assert code == "CODE_MODE_CONTENT_LIMIT"
    assert "execution_policy.max_content_part_bytes is 1048576" in message
    with pytest.raises(CodeModeSerializationError, match=r"continuation\.content_store"):
        within(run_code_mode(ROUND, tools.all, options=PAUSING))


FORGED = """const handle = (await tools.shot({})).picture, said = [];
const forged = [{ ...handle }, Object.create(handle), JSON.parse(JSON.stringify(handle)), new Proxy(handle, {}),
  structuredCloneOf(handle), { ...(await tools.echo({})) }];
for (const one of forged) {
  for (const use of [(x) => content(x), (x) => tools.size({ image: x })])
    try { await use(one); said.push("taken"); } catch { said.push("refused"); }
}
return { said, data: forged[0] };
function structuredCloneOf(x) { return Object.freeze(Object.fromEntries(Object.entries(x))); }"""


def test_what_only_looks_like_a_handle_is_data():
    tools = Tools()
    place = {"$content:" + "0" * 24: PICTURE.id, **PICTURE.description}  # of another run, in the words of its host
    tools.all["echo"] = Tool("echo", execute=lambda _: place)
    result = within(run_code_mode(FORGED, tools.all))
    assert result == {"said": ["refused"] * 12, "data": PICTURE.description}
    assert tools.given == []


class Kept:
    """A place for content that outlives this process, in memory."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, str], tuple[str, bytes]] = {}

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        self.parts[run, part_id] = description, data

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        return self.parts.get((run, part_id))


def test_a_store_keeps_what_a_continuation_does_not_carry():
    large = MediaContent(b"x" * (1 << 21), "image/png", name="large.png")
    store, tools = Kept(), Tools(gated=True, picture=large)
    js = "const shot = await tools.shot({}); await tools.cut({ image: shot.picture, to: 1 }); return shot.picture;"
    options = {**PAUSING, "continuation": {"content_store": store}}

    async def paused() -> Any:
        interrupt = await run_code_mode(js, tools.all, options=options)
        carried = interrupt.to_dict()
        assert sum(map(len, carried["continuation"]["body"])) < 1 << 14
        assert [data for _, data in store.parts.values()] == [large.data]
        again = create_code_mode_tool(tools.all, options)
        return await again.resume(Interrupt.from_dict(carried), {"approved": True})

    assert within(paused()) == large
    assert tools.given == [large]


def test_a_store_of_pauses_keeps_it_beside_the_record_and_a_repeat_is_given_it(tmp_path):
    large = MediaContent(b"x" * (1 << 21), "image/png", name="large.png")
    tools = Tools(gated=True, picture=large)
    js = "const shot = await tools.shot({}); await tools.cut({ image: shot.picture, to: 1 }); return shot.picture;"

    def tool_of(store: SqliteInterruptStore) -> Any:
        return create_code_mode_tool(tools.all, {**PAUSING, "continuation": {"guard": store.guard}})

    async def paused() -> Any:
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            interrupt = await tool_of(store).execute({"js": js})
            assert sum(map(len, interrupt.continuation["body"])) < 1 << 14
            record_id = await store.put(interrupt, tenant="acme")
            request_id = interrupt.interrupt_id
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            kept = await store.get(request_id, tenant="acme")
            answers = [await tool_of(store).resume(kept, {"approved": True}) for _ in range(2)]
            assert (await store.record(record_id, tenant="acme")).requests[0].input["to"] == 1
            return answers

    assert within(paused()) == [large, large]
    assert tools.given == [large]


def test_a_host_that_seals_continuations_seals_what_is_kept(tmp_path):
    secret = MediaContent(b"only for us" * (1 << 18), "image/png", name="named in secret")
    tools = Tools(gated=True, picture=secret)
    js = "const shot = await tools.shot({}); await tools.cut({ image: shot.picture, to: 1 }); return shot.picture;"

    async def paused() -> Any:
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            keeping = {"guard": store.guard, "seal": True, "keys": ["k" * 32]}
            code_mode = create_code_mode_tool(tools.all, {**PAUSING, "continuation": keeping})
            interrupt = await code_mode.execute({"js": js})
            on_disk = b"".join(one.read_bytes() for one in tmp_path.iterdir())
            assert len(on_disk) > len(secret.data)
            assert not [word for word in (b"only for us", b"named in secret") if word in on_disk]
            return await code_mode.resume(interrupt, {"approved": True})

    assert within(paused()) == secret


def test_a_journal_keeps_it_for_whoever_goes_on_from_there(tmp_path):
    tools = Tools(picture=MediaContent(b"x" * (1 << 21), "image/png"))
    begun, calls = asyncio.Event(), []

    async def slow(_: Any) -> int:
        calls.append(1)
        begun.set()
        return await asyncio.Future() if len(calls) == 1 else 7

    all_tools = {**tools.all, "slow": Tool("slow", execute=slow, annotations={"readOnlyHint": True})}
    js = (
        "const shot = await tools.shot({}); const n = await tools.slow({});"
        " return [n, shot.picture, await tools.size({ image: shot.picture })]"
    )

    async def run(store: SqliteInterruptStore) -> Any:
        journal = store.journal(tenant="acme", app="shop")
        keeping = {"keys": ["k" * 32], "conversation_id": "thread", "journal": journal}
        code_mode = create_code_mode_tool(all_tools, {"continuation": keeping})
        return await code_mode.execute({"js": js}, call=CallContext(tool_call_id="call"))

    async def cut_off_and_again() -> Any:
        async with SqliteInterruptStore(tmp_path / "journal.sqlite") as store:
            first = asyncio.ensure_future(run(store))
            await begun.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        async with SqliteInterruptStore(tmp_path / "journal.sqlite") as store:
            return [await run(store), await run(store)]

    picture = MediaContent(b"x" * (1 << 21), "image/png")
    assert within(cut_off_and_again()) == [[7, picture, 1 << 21]] * 2
    assert tools.given == [picture]


def test_what_a_store_has_lost_or_changed_is_refused():
    store, tools = Kept(), Tools(gated=True)
    js = "const shot = await tools.shot({}); return await tools.cut({ image: shot.picture, to: 1 });"
    code_mode = create_code_mode_tool(tools.all, {**PAUSING, "continuation": {"content_store": store}})

    async def resumed(change: Any) -> None:
        interrupt = await code_mode.execute({"js": js})
        change()
        with pytest.raises(CodeModeProtocolError, match="no longer has the content"):
            await code_mode.resume(interrupt, {"approved": True})

    within(resumed(store.parts.clear))
    within(resumed(lambda: store.parts.update({key: (told, b"other") for key, (told, _) in store.parts.items()})))
    assert tools.given == []


def test_blocks_of_an_mcp_server_are_content():
    text = b64encode(PICTURE.data).decode()
    blocks = [
        {"type": "text", "text": "taken"},
        {"type": "image", "data": text, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": text, "mimeType": "application/pdf"}},
        {"type": "image", "data": "*", "mimeType": "image/png"},
    ]
    tools = {"look": Tool("look", execute=lambda _: ToolResult(blocks))}
    result = within(run_code_mode("return (await tools.look({})).content", tools))
    taken = [MediaContent(PICTURE.data, "image/png"), MediaContent(PICTURE.data, "application/pdf")]
    assert result == [blocks[0], *taken, blocks[3]]


def test_state_takes_no_content_and_a_large_result_leaves_descriptions_there():
    state: dict[str, Any] = {}
    js = (
        "const shot = await tools.shot({}); let said;"
        " try { await state.set('picture', { shot }) } catch (error) { said = error.message }"
        " await state.set('size', shot.picture.bytes); return { said, shot, rows: 'x'.repeat(30000) }"
    )
    options = {"state": state, "model_output": {"max_model_characters": 20_000}}
    code_mode = create_code_mode_tool(Tools().all, options)
    result = within(code_mode.execute({"js": js}))
    assert "cannot be kept in state" in result["said"]
    assert result["shot"]["picture"] == PICTURE
    assert state["result:1"]["shot"] == {"picture": PICTURE.description, "count": 1}
    assert state.keys() == {"size", "result:1"}
