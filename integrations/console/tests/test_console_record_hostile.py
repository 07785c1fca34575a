"""Texts that models and strangers choose are texts on a record's page: no element, attribute or link comes of any."""

from __future__ import annotations

import unicodedata
from typing import Any

from console_visitors import run
from record_desk import Page, RecordDesk
from suite import each_row

from codemode import CodeModeToolError, Tool, create_code_mode_tool

TEXTS = {
    "script": "<script>alert(1)</script>",
    "ended": "</code></pre></li></mark></textarea></style></title><script>alert(1)</script>",
    "event": "<img src=x onerror=alert(1)>",
    "attribute": "\" onmouseover=\"alert(1)\" x='' autofocus onfocus=alert(1) '",
    "svg": "<svg/onload=alert(1)><a xlink:href=javascript:alert(1)>",
    "link": "javascript:alert(1) data:text/html,<script>alert(1)</script> [a](javascript:alert(1)) https://evil.test/",
    "comment": "<!-- <![CDATA[ ?> <? {{ 7 * 7 }} {% raw %} &lt;b&gt; &#60;b&#62;",
    "direction": "\u202ereversed\u202c \u2066\u2067\u2069 \u200f\u061c",
    "unseen": "a\u200bb\u00adc\ufeffd\u2028e\u2029f\x00g\x1bh\x85i\U000e0041j\u3164k",
    "marks": "z" + "\u0351" * 200,
}
# A form has other controls for characters that nobody sees.
BENIGN = ("plain", "pl\x07ain")
# What may stand where a link leads to or a form is sent.
OWN = ("/approvals/", "#")


async def page_with(text: str) -> Page:
    """Return a page on which every text that a model or a stranger may choose is this one."""
    desk = RecordDesk()

    def find(given: Any, _context: Any) -> Any:
        if given["fails"]:
            raise CodeModeToolError(text)
        return {text: text, "list": [text]}

    string = {"type": "string", "title": text, "description": text, "examples": [text]}
    schema: Any = {"type": "object", "description": text, "properties": {"note": string, "kind": {"enum": [text]}}}
    tools = [
        Tool("refund", execute=lambda *_: text, description=text, input_schema=schema, needs_approval=True),
        Tool("find", execute=find, input_schema={"type": "object"}),
    ]
    continuation: Any = {"guard": desk.store.guard, "max_age_ms": 86_400_000}
    code_mode = create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}, "continuation": continuation})
    desk.code_mode = code_mode
    literal = "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else "?" for one in text)
    js = f"""/* {text.replace("*/", "* /")} */
await tools.find({{ fails: false, given: "{literal}", "{literal}": 1 }});
try {{ await tools.find({{ fails: true }}) }} catch {{}}
const first = await tools.refund({{ note: "{literal}" }});
return [first, await tools.refund({{ note: "{literal}" }})];"""
    known = text.replace("\0", "")
    record_id = await desk.pause(js, app=known, labels={known: known})
    edited = {"approved": True, "reason": text, "input": {"note": f"{text} more"}}
    await desk.answer(record_id, edited, actor=known)
    lease_of = (await desk.store.record(record_id, tenant="acme")).requests[1]
    await desk.store.decide({lease_of.interrupt_id: {"approved": True}}, actor=known, tenant="acme")
    lease = await desk.store.claim(owner="o", tenant="acme", record_id=record_id)
    assert lease is not None
    await desk.store.release(lease, refusals={lease_of.interrupt_id: text}, not_resumable=text)
    return await desk.page(record_id)


def shape(page: Page) -> list[tuple[str, tuple[str, ...]]]:
    """Return the elements of a page, without those that colour a program, and the names of their attributes."""
    return [(one.name, tuple(one.attributes)) for one in page.elements if not is_colour(one.attributes)]


def is_colour(attributes: dict[str, str | None]) -> bool:
    return (attributes.get("class") or "").startswith("tok-")


@each_row("text", TEXTS.values())
def test_no_element_and_no_attribute_comes_of_a_text(text: str) -> None:
    async def work() -> None:
        page, ours = await page_with(text), [shape(await page_with(one)) for one in BENIGN]
        assert set(shape(page)) <= set().union(*ours) | {("p", ("role",))}
        for one in page.elements:
            assert not any(name.startswith("on") or name in ("style", "srcdoc") for name in one.attributes)
            for name in ("href", "src", "action", "formaction"):
                if name in one.attributes:
                    assert str(one.attributes[name]).startswith(OWN)
        (script,) = page.all("script")
        assert str(script.attributes["src"]).endswith("/static/console.js")
        seen = page.source
        assert all(one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Zl", "Zp") for one in seen)
        for heading in ("Program", "Calls so far", "Earlier versions"):
            assert page.section(heading)

    run(work)


def test_the_same_texts_are_all_there_to_be_read() -> None:
    async def work() -> None:
        text = TEXTS["script"]
        page = await page_with(text)
        for heading in ("Program", "Calls so far", "Earlier versions"):
            assert text in page.section(heading).text
        assert f"It cannot be resumed: {text}" in page.text
        assert f"by {text}, 20" in page.section("Earlier versions").text

    run(work)


def test_a_name_that_is_no_text_for_addresses_leads_to_its_own_page() -> None:
    async def work() -> None:
        desk = RecordDesk()
        for odd in ("../../sign-out", "//evil.test", "%2e%2e", "a?b#c", "\u202e"):
            async with desk.browser() as ana:
                answer = await ana.get(f"/records/{odd}")
                assert answer.status_code in (404, 405)
                assert "\u202e" not in answer.text

    run(work)
