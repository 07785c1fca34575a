"""A fetch function of the host's own: the least it must do, and what is checked around it."""

from __future__ import annotations

import asyncio
import random

import pytest
from fetching import HIDDEN, refusal, run_with
from suite import each_row

from codemode import CodeModeError
from codemode.errors import CodeModeFetchError


class Answer:
    """The least that a response must have."""

    reason_phrase = "Fine"

    def __init__(self, body=b"", status=200, headers=None, url="http://mine.localhost/"):
        self.status_code, self.headers, self.url, self._body = status, headers or {}, url, body
        self.closed = False

    async def aiter_bytes(self):
        for at in range(0, len(self._body), 3):
            yield self._body[at : at + 3]


def own(
    run, answer, js='return (await fetch("http://mine.localhost/x", { method: "POST", body: "b" })).text()', **policy
):
    calls = []

    async def fetch(url, *, method, headers, body):
        calls.append((url, method, headers, body))
        return answer(url) if callable(answer) else answer

    given = {"fetch": fetch, "allowed_origins": ["http://mine.localhost"], "allowed_methods": ["GET", "POST"], **policy}
    return run_with(js, {"fetch_policy": given}), calls


def test_a_function_of_the_host_gets_the_checked_request(run):
    text, calls = own(run, lambda url: Answer(b"mine", url=url))
    assert text == "mine"
    assert calls == [("http://mine.localhost/x", "POST", {"content-type": "text/plain;charset=UTF-8"}, b"b")]


def test_its_final_url_is_checked(run):
    js = 'const r = await fetch("http://mine.localhost/x"); return [r.url, r.redirected]'
    assert own(run, Answer(url="http://mine.localhost/y"), js)[0] == ["http://mine.localhost/y", True]
    for url in ("http://evil.test/", "nonsense", None):
        assert own(run, Answer(url=url), refusal('fetch("http://mine.localhost/x")'))[0][1] == "CODE_MODE_FETCH_ERROR"


def test_its_redirects_are_followed_by_us(run):
    hops = {"http://mine.localhost/x": Answer(status=302, headers={"Location": "/y"}, url="http://mine.localhost/x")}
    text, calls = own(run, lambda url: hops.get(url, Answer(b"there", url=url)), allow_redirects=True)
    assert text == "there"
    assert [call[:2] for call in calls] == [("http://mine.localhost/x", "POST"), ("http://mine.localhost/y", "GET")]


def test_its_body_is_counted_while_it_streams(run):
    js = refusal('fetch("http://mine.localhost/")')
    assert (
        "max_response_bytes"
        in own(run, Answer(b"x" * 11, headers={"content-length": "1"}), js, max_response_bytes=10)[0][2]
    )


class Exploding(Answer):
    async def aiter_bytes(self):
        yield b"x"
        raise ValueError("/secret/path")


class NotText(Answer):
    def aiter_bytes(self):
        return ["x"]


@each_row(
    "answer",
    [
        Exploding(),
        NotText(b"x"),
        Answer(status="200"),
        Answer(status=0),
        Answer(status=True),
        None,
        Answer(headers=5),
        {"status_code": 200},
    ],
)
def test_its_failures_are_hidden(run, answer):
    assert own(run, answer, refusal('fetch("http://mine.localhost/")'))[0] == HIDDEN


@pytest.mark.parametrize(
    "error", [ValueError("/secret"), SystemExit(3), asyncio.CancelledError(), TimeoutError(), CodeModeError("secret")]
)
def test_what_it_raises_is_hidden(run, error):
    def fail(_url):
        raise error

    assert own(run, fail, refusal('fetch("http://mine.localhost/")'))[0] == HIDDEN


def test_a_refusal_of_its_own_is_shown(run):
    def refuse(_url):
        raise CodeModeFetchError("over quota")

    assert own(run, refuse, refusal('fetch("http://mine.localhost/")'))[0][2] == "over quota"


def test_its_response_is_closed(run):
    answer = Answer(b"x", url="http://mine.localhost/x")

    async def aclose():
        answer.closed = True

    answer.aclose = aclose
    own(run, answer)
    assert answer.closed


def test_broken_utf8_is_decoded_as_the_encoding_standard_says(run):
    chance = random.Random(7)
    tricky = [
        0x00,
        0x41,
        0x7F,
        0x80,
        0xBF,
        0xC0,
        0xC1,
        0xC3,
        0xDF,
        0xE0,
        0xE2,
        0xA0,
        0x9F,
        0x82,
        0xED,
        0xEF,
        0xF0,
        0x90,
        0x8F,
        0xF4,
        0xF5,
        0xFF,
    ]
    bodies = [bytes(chance.choices(tricky, k=chance.randint(1, 9))) + b"\xff" for _ in range(150)]

    async def fetch(url, *, method, headers, body):
        return Answer(bodies[int(url.rpartition("/")[2])], url=url)

    policy = {"fetch": fetch, "allowed_origins": ["http://texts.localhost"]}
    js = f"""
      const texts = [];
      for (let i = 0; i < {len(bodies)}; i++) texts.push(await (await fetch("http://texts.localhost/" + i)).text());
      return texts
    """
    assert run_with(js, {"fetch_policy": policy}) == [body.decode("utf-8", "replace") for body in bodies]
