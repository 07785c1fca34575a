"""What is in a notice, and who may be told: hostile texts stay texts, bounds hold, signatures are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from codemode_console import SlackWebhook, TokenAuth, Webhook, approval_console, verify_signature
from codemode_console.notices import NoticeTarget
from codemode_console.notices.target import format_record_url
from codemode_console.visible_text import is_all_visible
from console_visitors import USERS
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from suite import each_row

from codemode.stores import MemoryInterruptStore, Notice, Record, StoredRequest

URL, SECRET, NOW = "https://hooks.test/T0/secret", "a secret", 1_800_000_000
LINK = "https://desk.test/approvals/records/r"
HOSTILE = [
    "<!channel>",
    "<https://evil.test|Open>",
    "*bold* _x_ `y` :tada: &lt;",
    "\u202egnp.exe",
    "a\u200bb\ufeff\x00\x1b[31m",
    "\ud800",
    "Tools\nrefund\nTenant\nacme",
    "\u0301" * 50,
    "x" * 20_000,
    "<&>" * 9_000,
    "\U000e0041" * 4_000,
]
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=200))
inputs = st.recursive(
    texts | st.integers() | st.none(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(texts, one, max_size=3),
    max_leaves=6,
)


def noticed(
    tool: str, *, app: str = "", tenant: str = "", labels: Any = None, value: Any = None, count: int = 1
) -> Notice:
    requests = tuple(
        StoredRequest(interrupt_id=f"q{number}", kind="k", tool_name=tool, input=value, payload={"p": "hidden"})
        for number in range(count)
    )
    decided = StoredRequest(interrupt_id="d", kind="k", tool_name="decided", input="other", payload={}, state="decided")
    record = Record(
        id="r",
        version=3,
        versions=(),
        state="pending",
        outer_tool="codeMode",
        tenant=tenant,
        app=app,
        labels=labels or {},
        source=None,
        payload=None,
        created_at_ms=NOW * 1000,
        expires_at_ms=NOW * 1000 + 5,
        requests=(*requests, decided),
        outcome=None,
    )
    return Notice(target="t", record=record, attempts=0, number=1)


def posted(target: NoticeTarget, notice: Notice) -> Any:
    return json.loads(target.create_request(notice, LINK, NOW).body)


def text_objects(value: Any) -> Iterator[Any]:
    """Give all that Slack would show of a message."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and "blocks" not in value:
            yield value
        for one in value.values():
            yield from text_objects(one)
    elif isinstance(value, list):
        for one in value:
            yield from text_objects(one)


def check_slack(message: Any) -> None:
    # The limits of Slack.
    assert len(message["blocks"]) <= 50
    kinds = [one["type"] for one in message["blocks"]]
    assert (kinds[:2], kinds[-1]) == (["header", "section"], "actions")
    assert len(message["blocks"][0]["text"]["text"]) <= 150
    assert 1 <= len(message["blocks"][1]["fields"]) <= 10
    assert all(len(one["text"]) <= 2_000 for one in message["blocks"][1]["fields"])
    (button,) = message["blocks"][-1]["elements"]
    assert (button["type"], button["url"], button["text"]["text"]) == ("button", LINK, "Open")
    for one in text_objects(message):
        assert (one["type"], one["emoji"]) == ("plain_text", False)
        assert 1 <= len(one["text"]) <= 3_000
        assert not set(one["text"]) & set("<>")
        assert is_all_visible(one["text"], one_line=False)
    assert "mrkdwn" not in json.dumps(message["blocks"])


@given(tool=texts, app=texts, tenant=texts, labels=st.dictionaries(texts, texts, max_size=12), value=inputs)
def test_hostile_texts_in_slack_are_plain_text_that_is_seen_and_short(tool, app, tenant, labels, value):
    notice = noticed(tool, app=app, tenant=tenant, labels=labels, value=value, count=7)
    for include_input in (False, True):
        message = posted(SlackWebhook(URL, include_input=include_input), notice)
        check_slack(message)
        assert message["text"] == "7 calls wait for a decision"


@each_row("text", HOSTILE)
def test_a_text_cannot_pass_for_another_line_of_the_message(text):
    message = posted(SlackWebhook(URL), noticed(text, tenant="acme"))
    fields = [one["text"].split("\n") for one in message["blocks"][1]["fields"]]
    assert [(one[0], len(one)) for one in fields] == [("Tools", 2), ("Tenant", 2), ("Expires", 2)]
    assert fields[1][1] == "acme"


def test_many_tools_and_labels_are_counted():
    labels = {f"label{number}": "x" for number in range(20)}
    message = posted(SlackWebhook(URL), noticed("refund", labels=labels, count=60))
    shown = [one["text"] for one in message["blocks"][1]["fields"]]
    assert shown[0] == "Tools\nrefund (60)"
    assert shown[1].splitlines()[-1] == "and 12 more"
    said = posted(Webhook(URL, secret=SECRET), noticed("refund", count=60))
    assert (said["count"], len(said["requests"])) == (60, 50)


@pytest.mark.parametrize("target", [SlackWebhook(URL), Webhook(URL, secret=SECRET)])
def test_no_input_and_nothing_that_decides_is_in_a_notice(target):
    notice = noticed("refund", value={"iban": "DE02"}, app="desk", labels={"a": "b"})
    body = target.create_request(notice, LINK, NOW).body.decode()
    for secret in ("iban", "DE02", "hidden", "q0", SECRET, "decided", "token", "shown"):
        assert secret not in body
    assert LINK in body


@given(tool=texts, value=inputs, labels=st.dictionaries(texts, texts, max_size=3))
def test_a_webhook_says_the_input_as_it_is_in_json_of_ascii_and_within_bounds(tool, value, labels):
    post = Webhook(URL, secret=SECRET, include_input=True).create_request(
        noticed(tool, value=value, labels=labels), LINK, NOW
    )
    assert post.body.isascii()
    said = json.loads(post.body)
    (one,) = said["requests"]
    assert one.get("input", value) == value
    assert ("input" in one) != ("inputBeginning" in one)
    assert len(one.get("inputBeginning", "")) <= 16_384
    assert len(one["tool"]) <= 1_000
    assert verify_signature(SECRET, post.headers, post.body, clock=lambda: NOW)


def test_an_expiry_that_no_calendar_has_is_left_out():
    notice = noticed("refund")
    object.__setattr__(notice.record, "expires_at_ms", (1 << 53) - 1)
    message = posted(SlackWebhook(URL), notice)
    assert [one["text"] for one in message["blocks"][1]["fields"]] == ["Tools\nrefund"]


def test_a_link_is_below_the_base_and_nothing_else():
    assert (
        format_record_url("https://desk.test/approvals/", "../x?y#z")
        == "https://desk.test/approvals/records/..%2Fx%3Fy%23z"
    )


SIGNED = Webhook(URL, secret=SECRET).create_request(noticed("refund"), LINK, NOW + 0.9)


@each_row("late", [-301, -300, 0, 300, 301])
def test_a_signature_holds_for_so_long(late):
    said = verify_signature(SECRET, SIGNED.headers, SIGNED.body, clock=lambda: NOW + late)
    assert said == (abs(late) <= 300)
    assert verify_signature(SECRET, SIGNED.headers, SIGNED.body, clock=lambda: NOW + late, tolerance_seconds=400)


def test_a_signature_is_known_with_one_of_several_secrets_and_in_headers_of_any_case():
    at = {"clock": lambda: NOW}
    for headers in (Headers(SIGNED.headers), {name.upper(): value for name, value in SIGNED.headers.items()}):
        assert verify_signature(["old", SECRET], headers, SIGNED.body, **at)
        assert verify_signature(SECRET.encode(), headers, SIGNED.body, **at)
        assert not verify_signature(["old", "new"], headers, SIGNED.body, **at)


def changes() -> Iterator[tuple[dict[str, str], bytes]]:
    good = dict(SIGNED.headers)
    yield good, SIGNED.body + b" "
    yield good, b""
    for name in ("Codemode-Time", "Codemode-Signature"):
        yield {key: value for key, value in good.items() if key != name}, SIGNED.body
        for wrong in (
            "",
            "\ud800",
            "\u0661",
            "-5",
            "1e9",
            "9" * 5_000,
            f"{NOW + 1}",
            "v1=",
            f" {NOW}",
            "v0=" + "a" * 64,
        ):
            yield {**good, name: wrong}, SIGNED.body
    yield {**good, "Codemode-Signature": good["Codemode-Signature"].upper()}, SIGNED.body
    # What stands between time and body belongs to both or to none.
    yield {**good, "Codemode-Time": str(NOW)[:-1]}, str(NOW)[-1:].encode() + b"." + SIGNED.body


@each_row("headers, body", list(changes()))
def test_what_was_changed_is_not_signed(headers, body):
    assert not verify_signature(SECRET, headers, body, clock=lambda: NOW)


@each_row(
    "secret, body, tolerance",
    [("", b"", 300), ([], b"", 300), (5, b"", 300), ([""], b"", 300), (SECRET, "text", 300), (SECRET, b"", 0)],
)
def test_a_check_that_cannot_be_one_is_refused(secret, body, tolerance):
    with pytest.raises((ValueError, TypeError)):
        verify_signature(secret, {}, body, tolerance_seconds=tolerance)


@each_row("url",
    ["", "hooks.test/x", "ftp://hooks.test/SeCrEt", "file:///SeCrEt", "javascript:SeCrEt", "https:///SeCrEt", "https://",
     "https://user:SeCrEt@hooks.test/", "https://hooks.test:99999/SeCrEt", "https://hooks.test/SeCrEt\r\nx: y",
     "https://hooks test/SeCrEt", "//hooks.test/SeCrEt", None, 5, b"https://hooks.test/SeCrEt"])  # fmt: skip
def test_what_is_no_url_is_refused_and_not_told(url):
    for make in (lambda: SlackWebhook(url), lambda: Webhook(url, secret=SECRET)):
        with pytest.raises(ValueError, match=r"^url must") as raised:
            make()
        assert "SeCrEt" not in str(raised.value)


@each_row("secret", ["", b"", None, 5, ["SeCrEt"]])
def test_a_webhook_has_a_secret(secret):
    with pytest.raises(ValueError, match=r"^secret must") as raised:
        Webhook(URL, secret=secret)
    assert "SeCrEt" not in str(raised.value)


@each_row("name", ["", "x" * 101, "a\nb", "\u202e", 5])
def test_a_name_is_seen_as_it_is(name):
    with pytest.raises(ValueError, match=r"^name must"):
        SlackWebhook(URL, name=name)


def test_a_target_is_named_after_what_it_is_and_its_url_and_stays_so():
    first, again, other = SlackWebhook(URL), SlackWebhook(URL, include_input=True), SlackWebhook(URL + "x")
    assert first.name == again.name != other.name
    assert first.name != Webhook(URL, secret="x").name
    assert "hooks" not in first.name
    assert repr(first) == f"SlackWebhook(name='{first.name}', include_input=False)"
    assert SlackWebhook(URL, name="ops channel").name == "ops channel"


@each_row(
    "notify, base_url, words",
    [
        ([SlackWebhook(URL)], None, "notify needs base_url"),
        ([SlackWebhook(URL)], "https://desk.test/?next=x", "base_url must be"),
        ([SlackWebhook(URL)], "https://desk.test/" + "x" * 2_000, "base_url must be"),
        ([SlackWebhook(URL)], "desk.test", "base_url must be"),
        (SlackWebhook(URL), LINK, "notify must be a list"),
        (URL, LINK, "notify must be a list"),
        (None, LINK, "notify must be a list"),
        ([URL], LINK, "notify must be a list of Webhook and SlackWebhook, got str"),
        ([SlackWebhook], LINK, "notify must be a list of Webhook and SlackWebhook, got"),
        ([SlackWebhook(URL), SlackWebhook(URL, include_input=True)], LINK, "two targets of one name"),
        ([SlackWebhook(URL, name="a"), Webhook(URL, secret="b", name="a")], LINK, "two targets of one name"),
    ],
)
def test_whom_a_console_cannot_tell_is_refused(notify, base_url, words):
    with pytest.raises(ValueError, match=words) as raised:
        approval_console(MemoryInterruptStore(), auth=TokenAuth(USERS), notify=notify, base_url=base_url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("include_input", [None, 1, "yes"])
def test_whether_inputs_are_told_is_said_by_yes_or_no(include_input):
    with pytest.raises(ValueError, match="include_input"):
        SlackWebhook(URL, include_input=include_input)
