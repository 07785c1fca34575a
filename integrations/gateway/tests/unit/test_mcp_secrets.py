"""Secrets are found in every form in which a server may give them back, and nothing else is changed."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import logging
import string
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from codemode_gateway.config import redaction
from codemode_gateway.config import redaction as secrets_of_config
from codemode_gateway.config.redaction import REPLACEMENT, SecretRedactor
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

SECRET = "p/ä+s \"w\\ö`r&d'%41 =\n\U0001f511x"
ESCAPES = "abc%\\+u0041&;="
UNLIKE = st.text("jkJK \n{}[]:,.", max_size=12)  # no part of a secret below, and no part of an encoding of one


def utf16_escapes(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))


ENCODINGS = {
    "as it is": str,
    "url": lambda text: quote(text, safe=""),
    "url but slashes": quote,
    "url as browsers": lambda text: quote(text, safe="!'()*"),
    "url, small digits": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "form": quote_plus,
    "json": lambda text: json.dumps(text)[1:-1],
    "json, readable": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json, slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "json of json": lambda text: json.dumps(json.dumps(text))[3:-3],
    "json, escaped": utf16_escapes,
    "python": lambda text: repr(text)[1:-1],
    "html": html.escape,
    "html, numbers": lambda text: "".join(f"&#{ord(one)};" for one in text),
    "html, hexadecimal": lambda text: "".join(f"&#x{ord(one):x};" for one in text),
    "url of json": lambda text: quote(json.dumps(text)),
    "url twice": lambda text: quote(quote(text, safe=""), safe=""),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a pair": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64 within": lambda text: base64.b64encode(f"jk{text}kj".encode()).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(f"u:{text}".encode()).decode().rstrip("="),
    "base64 in a url": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "hexadecimal": lambda text: text.encode().hex(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper(),
    "bearer": lambda text: f"Bearer {text}",
}


def leaks(text: str, secret: str, encode: str) -> bool:
    """Whether more of an encoded secret is left than the digits that it shares with what stands beside it."""
    form = ENCODINGS[encode](secret)
    return any(form[at : at + 8] in text for at in range(max(1, len(form) - 7)))


@pytest.mark.parametrize("encode", ENCODINGS)
@given(before=UNLIKE, after=UNLIKE)
def test_a_secret_is_taken_out_in_every_form(encode: str, before: str, after: str):
    found = SecretRedactor([SECRET]).redact_text(f"{before}{ENCODINGS[encode](SECRET)}{after}")
    assert REPLACEMENT in found
    assert found.startswith(before)
    assert not leaks(found, SECRET, encode)


@pytest.mark.parametrize("encode", ENCODINGS)
@given(
    secret=st.text(string.ascii_letters + string.digits + "!#$%&'()*+-./:<=>?@[]^_{|}~ äß√", min_size=8, max_size=40)
)
def test_any_secret_is_taken_out_in_every_form(encode: str, secret: str):
    if secret != secret.strip():
        secret = f"x{secret}x"
    found = SecretRedactor([secret]).redact_text(f"({ENCODINGS[encode](secret)})")
    assert REPLACEMENT in found
    assert secret not in found


@given(
    texts=st.lists(st.text("abc%\\+u0041&;=", min_size=8, max_size=14), max_size=8),
    text=st.text("abc%\\+u0041&;=", max_size=300),
)
def test_no_secret_is_left_and_where_there_is_none_nothing_changes(texts: list[str], text: str):
    found = SecretRedactor(texts).redact_text(text)
    assert not any(one.strip() in piece for one in texts for piece in found.split(REPLACEMENT))
    if REPLACEMENT not in found:
        assert found is text


@given(texts=st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=6), text=st.text("ab", max_size=80))
def test_what_is_hidden_is_what_any_of_them_covers(texts: list[str], text: str):
    covered = [False] * len(text)
    for one in texts:
        for at in range(len(text)):
            if text.startswith(one, at):
                covered[at : at + len(one)] = [True] * len(one)
    expected = "".join("#" if hidden else character for character, hidden in zip(text, covered, strict=True))
    while "##" in expected:
        expected = expected.replace("##", "#")
    assert SecretRedactor(texts).redact_text(text).replace(REPLACEMENT, "#").replace("##", "#") == expected


def test_short_ones_leave_ordinary_words_whole():
    secrets = SecretRedactor(["pass", "on", "", "4711"])
    text = "a passenger passes on, bypassing compass 47110 and x4711"
    assert secrets.redact_text(text) == text
    assert secrets.redact_text("with pass: 4711, PIN=4711.") == f"with {REPLACEMENT}: {REPLACEMENT}, PIN={REPLACEMENT}."


def test_parts_of_headers_and_keys_are_secret_alone():
    credentials = base64.b64encode(b"me:hunter2-hunter2").decode()
    key = "-----BEGIN KEY-----\n" + "A1b2C3d4E5f6G7h8I9j0K\n" * 2 + "-----END KEY-----\n"
    secrets = SecretRedactor(["Bearer abcdefgh12345678", f"Basic {credentials}", key])
    assert secrets.redact_text("abcdefgh12345678") == REPLACEMENT
    assert secrets.redact_text("hunter2-hunter2") == REPLACEMENT
    assert secrets.redact_text("line 2: A1b2C3d4E5f6G7h8I9j0K") == f"line 2: {REPLACEMENT}"
    assert secrets.redact_text("-----BEGIN KEY-----") == "-----BEGIN KEY-----"
    assert secrets.redact_text("Bearer of news, Basic facts") == "Bearer of news, Basic facts"


def test_values_are_cleaned_in_keys_numbers_and_depths():
    secrets = SecretRedactor(["hunter2-hunter2", "hunter3-hunter3", "1234567890"])
    value = {
        "hunter2-hunter2": 1,
        "hunter3-hunter3": 2,
        REPLACEMENT: 3,
        "list": [True, None, 1.5, 1234567890, -5, ("hunter2-hunter2",)],
        "n": 12345678901,
    }
    assert secrets.redact(value) == {
        f"{REPLACEMENT} 2": 1,
        f"{REPLACEMENT} 3": 2,
        REPLACEMENT: 3,
        "list": [True, None, 1.5, REPLACEMENT, -5, [REPLACEMENT]],
        "n": f"{REPLACEMENT}1",
    }
    deep: object = "hunter2-hunter2"
    for _ in range(5_000):
        deep = [deep]
    found = secrets.redact(deep)
    while isinstance(found, list):
        found = found[0]
    assert found == REPLACEMENT


def test_without_secrets_nothing_is_copied():
    value = {"a": [1, "b"]}
    assert SecretRedactor().redact(value) is value
    assert SecretRedactor(["abc"]).redact(value) is value


def looks_of(secrets: SecretRedactor, text: str) -> int:
    """Count the places of a text that are looked at closely."""
    looks = 0
    real = redaction.SecretSearch._find_match_at

    def counted(search: redaction.SecretSearch, text: str, start: int) -> str | None:
        nonlocal looks
        looks += 1
        return real(search, text, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redaction.SecretSearch, "_find_match_at", counted)
        secrets.redact_text(text)
    return looks


@each_row("text", ["sk-live-", "%25", "\\u005c", "abcdefghi ", "c2stbGl2"])
def test_as_many_places_are_looked_at_whatever_the_number_of_secrets(text: str):
    few, many = (SecretRedactor(f"sk-live-{n:04}" + "x" * (n % 40) for n in range(count)) for count in (1, 1_000))
    length = 30_000 // len(text)
    once, thrice = (looks_of(many, text * times) for times in (length, 3 * length))
    assert thrice <= 3.1 * once + 20
    assert once <= 4 * looks_of(few, text * length) + 4_000


def test_large_values_leave_the_loop(monkeypatch: pytest.MonkeyPatch):
    secrets, seen = SecretRedactor(["hunter2-hunter2"]), set[bool]()
    real = SecretRedactor.redact
    here = threading.current_thread()
    monkeypatch.setattr(
        SecretRedactor,
        "redact",
        lambda self, value: (seen.add(threading.current_thread() is here), real(self, value))[1],
    )
    value = {"x": ["y" * 1_000] * 3_000 + ["hunter2-hunter2"]}
    assert asyncio.run(secrets.redact_off_loop(value))["x"][-1] == REPLACEMENT
    assert seen == {False}


def test_tokens_are_added_while_it_is_in_use():
    secrets = SecretRedactor(["hunter2-hunter2"])
    assert "fresh-token-1" in secrets.redact_text("fresh-token-1")
    secrets.add_secrets("fresh-token-1")
    secrets.add_secrets("fresh-token-1", "hunter2-hunter2")
    assert secrets.redact_text("fresh-token-1 hunter2-hunter2") == f"{REPLACEMENT} {REPLACEMENT}"
    assert "hunter2" not in repr(secrets)
    assert "fresh" not in repr(secrets)


def test_logs_are_cleaned_whoever_listens(caplog: pytest.LogCaptureFixture):
    secrets = SecretRedactor(["hunter2-hunter2"])

    def log(name: str) -> None:
        try:
            raise ValueError("in hunter2-hunter2")
        except ValueError:
            logging.getLogger(name).exception("at %s", "hunter2-hunter2", stack_info=True)

    with secrets.redact_logs():
        for name in ("mcp.client.auth.some_late_module", "codemode.mcp", "httpx2", "client.of_the_sdk"):
            log(name)
    assert "hunter2" not in caplog.text
    assert caplog.text.count(f"at {REPLACEMENT}") == 4
    assert caplog.text.count(f"ValueError: in {REPLACEMENT}") == 4
    log("mcp")
    assert "hunter2-hunter2" in caplog.text


def test_a_filter_cleans_arguments_tracebacks_and_what_was_added(caplog: pytest.LogCaptureFixture):
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s and %d", ("hunter2-hunter2", "no number"), None)
    record.extra = {"deep": ["hunter2-hunter2"]}
    assert SecretRedactor(["hunter2-hunter2"]).create_log_filter().filter(record)
    assert "hunter2" not in str(record.__dict__)
    assert record.getMessage() == "%s and %d"


@pytest.mark.parametrize("turn", [list, reversed])
def test_guards_of_logs_may_end_in_any_order(turn: Callable[[list[Any]], Iterable[Any]], caplog: Any):
    before = logging.getLogRecordFactory()
    guards = [SecretRedactor([letter * 8]).redact_logs() for letter in "ab"]
    try:
        for guard in guards:
            guard.__enter__()
        logging.getLogger("mcp").error("aaaaaaaa bbbbbbbb")
        for guard in turn(guards):
            guard.__exit__(None, None, None)
        logging.getLogger("mcp").error("aaaaaaaa bbbbbbbb")
    finally:
        logging.setLogRecordFactory(before)
    assert caplog.messages == [f"{REPLACEMENT} {REPLACEMENT}", "aaaaaaaa bbbbbbbb"]


def test_whoever_has_new_tokens_all_the_time_drives_out_their_own_alone():
    secrets = SecretRedactor()
    secrets.add_secrets("client-secret-1")
    secrets.add_secrets("quiet-token-1", owner="quiet")
    for number in range(50):
        secrets.add_secrets(f"loud-token-{number}-end", owner="loud")
    told = secrets.redact_text("client-secret-1 quiet-token-1 loud-token-49-end loud-token-34-end loud-token-33-end")
    assert told == "[secret] [secret] [secret] [secret] loud-token-33-end"


def test_a_token_that_is_given_again_is_the_last_one():
    secrets = SecretRedactor()
    more = [f"more-token-{number}" for number in range(15)]
    for text in ("first-token-1", *more, "first-token-1", "another-token-1"):
        secrets.add_secrets(text, owner="one")
    assert secrets.redact_text("first-token-1 more-token-0") == "[secret] more-token-0"


def test_what_many_owners_have_is_bounded_and_the_configurations_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secrets_of_config, "_MAX_ADDED", 40)
    monkeypatch.setattr(redaction, "_MAX_RECENT", 100)  # what is forgotten is so at once
    secrets = SecretRedactor()
    secrets.add_secrets("client-secret-1")
    for owner in range(30):
        secrets.add_secrets(f"token-{owner}-a-end", f"token-{owner}-b-end", owner=str(owner))
    assert repr(secrets) == "<Secrets: 41>"
    told = secrets.redact_text("client-secret-1 token-29-a-end token-10-a-end token-9-b-end")
    assert told == "[secret] [secret] [secret] token-9-b-end"
