"""Recoveries with fetches: a GET is made again, nothing else is."""

from __future__ import annotations

import asyncio

import pytest
from pausing import PAUSING, go_on, start
from recovering import UNKNOWN, failing

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
)


class Reply:
    """The least that a response must have."""

    status_code, reason_phrase, headers = 200, "OK", {}

    def __init__(self, url):
        self.url = url

    async def aiter_bytes(self):
        yield b"fetched"


@pytest.fixture
def fetching(passing_time):
    """Make options with a fetch of the host's own, which answers, or has begun when the run is too late."""

    def options(hang, seen):
        async def fetch(url, *, method, headers, body):
            seen.append(method)
            if hang:
                passing_time.skip(61)
                await asyncio.Event().wait()
            return Reply(url)

        policy = {
            "fetch": fetch,
            "allowed_origins": ["http://mine.localhost"],
            "allowed_methods": ["GET", "POST"],
            "refuse_private_addresses": False,
        }
        return {"fetch_policy": policy, "execution_policy": {"timeout_ms": 60_000}}

    return options


def fetch_js(method):
    return f'return (await fetch("http://mine.localhost/x", {{ method: "{method}" }})).text()'


def test_a_get_is_made_again(fetching):
    seen = []
    error = failing(CodeModeTimeoutError, fetch_js("GET"), [], fetching(True, seen))
    assert error.recovery.requests == ()
    assert go_on(error.recovery, [], options=fetching(False, seen)) == "fetched"
    assert seen == ["GET", "GET"]


def test_a_post_of_unknown_outcome_is_asked_about(fetching):
    seen = []
    error = failing(CodeModeTimeoutError, fetch_js("POST"), [], fetching(True, seen))
    (request,) = error.recovery.requests
    assert (request.input["method"], request.payload) == ("POST", {"kind": UNKNOWN})
    with pytest.raises(CodeModeProtocolError):
        go_on(error.recovery, [], {"value": "fetched"}, options=fetching(False, seen))
    assert go_on(error.recovery, [], {"runAgain": True}, options=fetching(False, seen)) == "fetched"
    assert seen == ["POST", "POST"]


def test_a_post_that_failed_is_an_error_to_the_program(fetching):
    seen = []
    error = failing(CodeModeTimeoutError, fetch_js("POST"), [], fetching(True, seen))
    with pytest.raises(CodeModeError, match="not sent"):
        go_on(error.recovery, [], {"error": {"message": "not sent"}}, options=fetching(False, seen))
    assert seen == ["POST"]


def test_a_post_in_a_resume_is_not_made_again_by_a_repeat(spy, fetching):
    seen = []
    js = f"await tools.login(1).catch(() => {{}}); {fetch_js('POST')}"
    interrupt = start(js, [spy.guarded("login")], {**PAUSING, "execution_policy": {"check_program": False}})
    denied = {"approved": False}
    # The pause was made without fetch; it is part of what a replay depends on, so there is none in the resume either.
    with pytest.raises(CodeModeError):
        go_on(interrupt, [spy.guarded("login")], denied, options={**PAUSING, **fetching(True, seen)})
    assert seen == []
    interrupt = start(js, [spy.guarded("login")], {**PAUSING, **fetching(False, seen)})
    for _ in range(2):
        with pytest.raises(CodeModeTimeoutError):
            go_on(interrupt, [spy.guarded("login")], denied, options={**PAUSING, **fetching(True, seen)})
    assert seen == ["POST"]
