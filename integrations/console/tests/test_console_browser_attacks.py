"""What models and other pages try in a real browser: texts that want to be code, and forms of somebody else's."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from browsing import BOB, Desk, Hall, Visitor, button, cards, follow, open_record, refused, serving, shape_of, visiting
from suite import full_only

from codemode import Tool, ToolCallContext, request_interrupt
from codemode.stores import ALL_TENANTS

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.full

ASK = "return await tools.refund({ order: 'A-17', cents: 90000 })"
# Each ends whatever it may stand in, and would be seen to run.
ATTACKS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</title></pre></style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)><animate onbegin=alert(1) attributeName=x dur=1s>',
    "' onmouseover='alert(1)' autofocus onfocus='alert(1)' x='",
    "` onfocus=alert(1) autofocus ",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "https://evil.example/x.png",
    "![x](https://evil.example/x.png) [y](javascript:alert(1))",
    "{{ 7 * 7 }}{% include 'base.html' %}<%= 7 * 7 %>",
    "<iframe src=https://evil.example></iframe><base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example><button>Approve</button></form>",
    "\u202e\u2066gpj.exe\u2069\u200f\u061c\u200b\ufeff\U000e0041\x1b[31m\x00",
    "--><!--><![CDATA[<script>alert(1)</script>]]>",
)
ALL = " ".join(ATTACKS)
NAME = "<img src=x onerror=alert(1)>\"' autofocus onfocus=alert(1) `${alert(1)}` javascript:alert(1)"
UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\u200b\ufeff\x00\x1b]|[\U000e0000-\U000e007f]")


class Recorder:
    """A host tool that is named, described and described by its schema as an attacker would."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def tools(self) -> Sequence[Any]:
        def run(value: Any) -> str:
            self.given.append(value)
            return f"did {ALL}"

        def ask(value: Any, context: ToolCallContext) -> Any:
            if context.interrupt is None:
                request_interrupt({"kind": ALL[:200], "title": ALL, "message": ALL, "schema": hostile_schema()})
            return context.interrupt

        def fail(value: Any) -> Any:
            raise RuntimeError(ALL)

        taking: Any = {"type": "object"}
        return [
            Tool("refund", execute=run, input_schema=taking, needs_approval=True),
            Tool(NAME, execute=run, input_schema=hostile_schema(), description=ALL, needs_approval=True),
            Tool("read", execute=run, input_schema=taking, description=ALL, annotations={"title": ALL}),
            Tool("ask", execute=ask, input_schema=taking, description=ALL),
            Tool("fail", execute=fail, input_schema=taking),
        ]


def hostile_schema() -> dict[str, Any]:
    """A schema that says in each place that has words what an attacker would."""
    words = {"title": ALL, "description": ALL, "default": ALL, "examples": [ALL]}
    fields: dict[str, Any] = {
        one: {**words, "type": ["string", "null"]} if at % 2 else {"enum": [one, ALL], **words}
        for at, one in enumerate(ATTACKS)
    }
    chosen = {"anyOf": [{"const": one, "title": one} for one in ATTACKS]}
    listed = {"type": "array", "items": {**words, "type": "string"}, **words}
    return {**words, "type": "object", "properties": {**fields, "chosen": chosen, "listed": listed, "free": words}}


def program() -> str:
    """A program that has said and done all of it when it asks two people."""
    given = {**{one: one for one in ATTACKS}, "chosen": ATTACKS[0], "listed": list(ATTACKS), "free": {ALL: [ALL]}}
    said = json.dumps(ALL)
    return f"""// {ALL.replace(chr(0), "")}
const marks = {json.dumps(ATTACKS)};
console.log({said});
await tools.read({{ [{said}]: {said} }});
try {{ await tools.fail({{ why: {said} }}); }} catch (error) {{ console.error(error); }}
const all = await Promise.all([tools[{json.dumps(NAME)}]({json.dumps(given)}), tools.ask({{ what: {said} }})]);
throw new Error({said});
"""


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def tools(recorder: Recorder) -> Sequence[Any]:
    return recorder.tools()


async def require_harmless(page: Page, url: str) -> None:
    """Look at a page for what text must never have become."""
    assert page.url.startswith(url), page.url
    found = await page.evaluate(
        """() => ({
          text: document.documentElement.innerText + document.title,
          values: [...document.querySelectorAll("input, textarea, option")].map((one) => one.value + one.text),
          attributes: [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes].map((a) => a.value)),
          named: [...document.querySelectorAll("*")].flatMap((one) => one.getAttributeNames()),
          elements: [...document.querySelectorAll("*")].map((one) => one.localName),
          urls: [...document.querySelectorAll("[href], [src], [action], [formaction]")].map(
            (one) => one.formAction || one.action || one.href || one.src),
          scripts: [...document.scripts].map((one) => one.src),
        })"""
    )
    assert not UNSEEN.search(found["text"]), found["text"]
    assert not [one for one in [*found["values"], *found["attributes"]] if UNSEEN.search(one)]
    assert not [one for one in found["named"] if one.startswith("on") or one in ("style", "srcdoc", "background")]
    assert not {"img", "iframe", "svg", "object", "embed", "base", "animate", "style"} & set(found["elements"])
    assert [urlsplit(one).path for one in found["scripts"]] == ["/static/console.js"]
    assert not [one for one in found["urls"] if not one.startswith(f"{url}/")]


async def links(page: Page, url: str) -> set[str]:
    """Return where a page leads, downloads apart."""
    found = await page.evaluate("[...document.querySelectorAll('a[href]:not([download])')].map((one) => one.href)")
    return {one.partition("#")[0] for one in found if one.startswith(url)}


async def test_no_text_of_a_model_becomes_anything_but_text(desk: Desk, visitor: Visitor, recorder: Recorder) -> None:
    from playwright.async_api import Error, expect

    labels = {ALL[:60]: ALL[:100], "thread": ALL[:100]}
    record_id = await desk.pause(program(), labels=labels, payload={"title": ALL, "link": "javascript:alert(1)"})
    await visitor.sign_in(desk.url)
    page = await visitor.page()
    await page.goto(f"{desk.url}/records/{record_id}")
    await require_harmless(page, desk.url)
    for summary in await page.locator("summary:visible").all():
        await summary.click()
    # What the script writes: the difference while it is typed, and what somebody else has answered meanwhile.
    await cards(page).first.locator(".fields input[type=text]:not([readonly])").first.fill("typed")
    record = await desk.until(record_id, lambda _: True)
    asked = next(one.interrupt_id for one in record.requests if one.tool_name == "ask")
    await desk.store.decide({asked: dict.fromkeys(ATTACKS, ALL)}, actor=ALL[:200], tenant=ALL_TENANTS)
    await expect(page.locator("#news")).to_contain_text("has changed")
    await require_harmless(page, desk.url)
    await page.goto(f"{desk.url}/records/{record_id}")
    await cards(page).first.locator("[name=reason]").fill(UNSEEN.sub("", ALL))
    await (
        cards(page)
        .first.locator("textarea[name=json]")
        .first.evaluate(
            "(one, text) => { one.value = text; one.dispatchEvent(new Event('input', { bubbles: true })) }",
            UNSEEN.sub("", ALL),
        )
    )
    await follow(page, button(cards(page).first, "Approve with changes"))
    await require_harmless(page, desk.url)
    await page.goto(f"{desk.url}/records/{record_id}")
    await cards(page).first.locator("[name=reason]").fill(ALL.replace("\x00", "")[:1000])
    await follow(page, button(cards(page).first, "Deny"))
    seen, ahead = set[object](), [f"{desk.url}/", f"{desk.url}/records/{record_id}"]
    while ahead:
        here = ahead.pop()
        if shape_of(here) in seen:
            continue
        seen.add(shape_of(here))
        assert len(seen) < 30, seen
        try:
            answer = await page.goto(here)
        except Error as error:
            if "download" not in str(error).lower():
                raise
            continue
        assert answer is not None
        assert answer.status < 500
        if answer.headers["content-type"].startswith("text/html"):
            await require_harmless(page, desk.url)
            ahead += sorted(await links(page, desk.url))
    assert recorder.given[:1] != []


@asynccontextmanager
async def elsewhere(body: str, host: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Serve a page of somebody else's on a port of its own; give its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = body.encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n" % len(text))
        writer.write(b"connection: close\r\n\r\n" + text)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"


def self_sending(action: str, fields: Mapping[str, str], more: str = "") -> str:
    """A page whose form is sent when it opens."""
    inputs = "".join(
        f'<input name="{html.escape(name)}" value="{html.escape(value)}">' for name, value in fields.items()
    )
    form = f'<form method="post" action="{action}" {more}>{inputs}</form>'
    return f"<!doctype html>{form}<script>document.forms[0].submit()</script>"


async def fields_of(page: Page) -> tuple[str, dict[str, str]]:
    """Return where the first card's form goes and what it holds."""
    form = cards(page).first
    found = await form.evaluate("form => [form.action, Object.fromEntries(new FormData(form))]")
    return found[0], found[1]


# Another port is the same site: the cookie comes along, and only where the form comes from tells it from one's own.
@pytest.mark.parametrize(("host", "encoding"), [
    ("127.0.0.1", "application/x-www-form-urlencoded"),
    *full_only(("localhost", "multipart/form-data")),
])  # fmt: skip
async def test_a_form_on_a_page_of_another_origin_decides_nothing(
    hall: Hall, desk: Desk, visitor: Visitor, recorder: Recorder, host: str, encoding: str
) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    action, fields = await fields_of(page)
    body = self_sending(action, {**fields, "decision": "approve"}, f'enctype="{encoding}"')
    async with elsewhere(body, host) as origin:
        visitor.trust(origin)
        async with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
            await page.goto(origin)
        answer = await answered.value
    assert answer.status in (401, 403)
    assert (await answer.request.all_headers())["origin"] == origin
    assert (await desk.until(record_id, lambda _: True)).requests[0].state == "waiting"
    assert recorder.given == []


async def test_no_page_of_another_origin_signs_anybody_out_or_in(desk: Desk, visitor: Visitor) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    token = await page.locator('form[action$="/sign-out"] [name=form_token]').input_value()
    for path, fields in (("/sign-out", {"form_token": token}), ("/sign-in", {"token": BOB})):
        async with elsewhere(self_sending(f"{desk.url}{path}", fields)) as origin:
            visitor.trust(origin)
            async with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
                await page.goto(origin)
            assert (await answered.value).status == 403
            await page.wait_for_url(f"{desk.url}{path}")  # or that page would come in between the next
    await page.goto(desk.url)
    assert await page.get_by_role("banner").inner_text() != ""
    assert "ana" in await page.get_by_role("banner").inner_text()


async def test_no_script_of_another_origin_reads_or_sends(desk: Desk, visitor: Visitor, recorder: Recorder) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    action, fields = await fields_of(page)
    async with elsewhere("<!doctype html><title>evil</title>") as origin:
        visitor.trust(origin)
        visitor.expect_blocked()
        await page.goto(origin)
        read = "url => fetch(url, { credentials: 'include' }).then((one) => one.text(), (error) => `no: ${error}`)"
        assert (await page.evaluate(read, f"{desk.url}/records/{record_id}")).startswith("no: ")
        send = """([url, body]) => fetch(url, { method: "POST", mode: "no-cors", credentials: "include",
          headers: { "content-type": "application/x-www-form-urlencoded" }, body }).then(() => 1, () => 0)"""
        form = "&".join(f"{name}={value}" for name, value in {**fields, "decision": "approve"}.items())
        await page.evaluate(send, [action, form])
        assert (await desk.kinds()).count("request_refused") == 1
    assert recorder.given == []


@pytest.mark.parametrize("host", ["localhost", *full_only("127.0.0.1")])
async def test_no_page_frames_the_console(desk: Desk, visitor: Visitor, host: str) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    async with elsewhere(
        f'<iframe src="{desk.url}/records/{record_id}" width=900 height=900></iframe>', host
    ) as origin:
        visitor.trust(origin)
        visitor.expect_blocked()
        await page.goto(origin, wait_until="load")
        framed = page.frame_locator("iframe")
        assert await framed.get_by_role("button").count() == 0
        assert page.frames[1].url.startswith("chrome-error:")


async def test_a_page_of_the_same_site_that_may_frame_it_does(hall: Hall, tools: Sequence[Any], tmp_path: Any) -> None:
    from playwright.async_api import expect

    body = "<!doctype html><iframe src='about:blank' width=900 height=900></iframe>"
    async with (
        elsewhere(body) as origin,
        serving(tmp_path / "framed.db", tools, options={"embed_in": [origin]}) as desk,
        visiting(hall, [desk.url, origin]) as visitor,
    ):
        url = f"{desk.url}/records/{await desk.pause(ASK)}"
        await visitor.sign_in(desk.url)
        page = await visitor.page()
        await page.goto(origin)
        await page.locator("iframe").evaluate("(one, url) => { one.src = url }", url)
        framed = page.frame_locator("iframe")
        await framed.get_by_role("button", name="Approve", exact=True).click()
        await expect(framed.get_by_role("main")).to_contain_text("ana")
        await desk.outcome(url.rpartition("/")[2])


async def test_a_forged_or_borrowed_token_of_a_form_decides_nothing(
    hall: Hall, desk: Desk, visitor: Visitor, recorder: Recorder
) -> None:
    first, second = await desk.pause(ASK), await desk.pause("return await tools.refund({ order: 'B-18' })")
    page = await open_record(visitor, desk, first)
    _, hers = await fields_of(page)
    async with visiting(hall, [desk.url]) as bob:
        _, his = await fields_of(await open_record(bob, desk, second, BOB))
    forged = hers["form_token"][:-4] + ("AAAA" if not hers["form_token"].endswith("AAAA") else "BBBB")
    for token in (forged, "", hers["form_token"], his["form_token"]):
        await page.goto(f"{desk.url}/records/{second}")
        await cards(page).locator("[name=form_token]").evaluate("(one, text) => { one.value = text }", token)
        assert await refused(page, button(page, "Approve")) == 403
    await visitor.sign_in(desk.url)
    await page.goto(f"{desk.url}/records/{second}")
    await cards(page).locator("[name=form_token]").evaluate("(one, text) => { one.value = text }", hers["form_token"])
    assert await refused(page, button(page, "Approve")) == 403
    assert recorder.given == []
    assert "request_refused" in await desk.kinds()


async def test_records_of_another_tenant_are_those_that_are_not_there(
    desk: Desk, visitor: Visitor, recorder: Recorder
) -> None:
    own, foreign = await desk.pause(ASK), await desk.pause(ASK, tenant="globex")
    asked = (await desk.until(foreign, lambda _: True)).requests[0].interrupt_id
    page = await open_record(visitor, desk, own, BOB)
    said = set[tuple[int, str]]()
    for name in (foreign, f"{foreign}x", "rec_unknown"):
        answer = await page.goto(f"{desk.url}/records/{name}")
        assert answer is not None
        said.add((answer.status, (await page.get_by_role("main").inner_text()).replace(name, "...")))
    assert [status for status, _ in said] == [404]
    await page.goto(desk.url)
    assert foreign not in await page.content()
    for name in (foreign, own):
        await page.goto(f"{desk.url}/records/{own}")
        await cards(page).evaluate("(form, action) => { form.action = action }", f"/records/{name}/requests/{asked}")
        assert await refused(page, button(page, "Approve")) == 404
    assert recorder.given == []


async def test_a_form_of_5_mb_is_too_much(desk: Desk, visitor: Visitor, recorder: Recorder) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await cards(page).locator("[name=reason]").evaluate("one => { one.value = 'x'.repeat(5_000_000) }")
    async with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        await button(page, "Approve").click()
    assert (await answered.value).status == 413
    await expect(page.get_by_role("main")).to_contain_text("too large")
    assert recorder.given == []
    await page.goto(f"{desk.url}/records/{record_id}")
    await button(page, "Approve").click()
    assert await desk.outcome(record_id)
