"""What callers hold over HTTP: requests and bytes of bodies count for whoever they are, and are given back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import httpx2
import mcp_types as types
import pytest
from codemode_gateway.gateway.http_app import HttpApp, create_http_app
from codemode_gateway.gateway.http_limits import HttpError, RequestLimiter
from codemode_gateway.gateway.http_settings import HttpLimits
from codemode_gateway.gateway.principals import RESERVATION_KEY, CallOrigin, count_request_middleware
from codemode_gateway.passthrough.client_requests import PAUSED_REQUESTS, PausedRequests
from gateway_doors import ANA, BOB, BOUND, MODERN, TOKENS, StandIn, bearer, modern_call, serving
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.auth.provider import AccessToken
from suite import each_row
from test_gateway_http_sessions import listed, opened

MOST = 20_000


class Posted:
    """A request that a test sends piece by piece, past any network."""

    def __init__(self, app: HttpApp, *, path: str = "/mcp", address: str = "127.0.0.1", **said: str) -> None:
        headers = {**modern_call()["headers"], "host": "127.0.0.1", "content-type": "application/json", **said}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "client": (address, 1),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self.status: int | None = None
        self.told = b""
        self._pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.task = asyncio.create_task(app(scope, self._pieces.get, self._send))  # type: ignore[arg-type]

    async def comes(self, body: bytes, *, ends: bool = False) -> None:
        """Let a piece of the body come, and all be done that can be done with it."""
        await self.happens({"type": "http.request", "body": body, "more_body": not ends})

    async def happens(self, message: dict[str, Any]) -> None:
        self._pieces.put_nowait(message)
        for _ in range(20):
            await asyncio.sleep(0)

    async def answered(self) -> int | None:
        await asyncio.wait_for(self.task, BOUND)
        return self.status

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.told += message.get("body", b"")


@contextlib.asynccontextmanager
async def running(auth: Any = None, verifier: Any = None, **limits: Any) -> AsyncGenerator[HttpApp]:
    app = create_http_app(
        StandIn({"tokens": TOKENS} if auth is None else auth, verifier),
        limits=HttpLimits(**{"held_bytes": MOST, "body_bytes": MOST, **limits}),
    )
    async with app.running():
        yield app


def call(name: str = "who", *, filled_to: int = 0) -> bytes:
    body = modern_call(name)["json"]
    empty = len(json.dumps({**body, "filler": ""}))
    return json.dumps({**body, "filler": "x" * max(0, filled_to - empty)}).encode()


async def has_room(app: HttpApp, token: str) -> bool:
    """Whether a user may send a message of nearly all that one may hold."""
    body = call(filled_to=MOST - 2_000)
    posted = Posted(app, **bearer(token), **{"content-length": str(len(body))})
    await posted.comes(body, ends=True)
    assert await posted.answered() in (200, 429)
    return posted.status == 200


@pytest.mark.parametrize("declares", [True, False])
def test_what_one_user_has_sent_is_bounded_all_together_and_nobody_elses(declares: bool):
    async def main() -> None:
        async with running() as app:
            body = call(filled_to=9_000)
            length = {"content-length": str(len(body))} if declares else {}
            one, two, three = (Posted(app, **bearer(ANA), **length) for _ in range(3))
            for posted in (one, two, three):
                await posted.comes(body[:-1])
            await three.comes(body[-1:], ends=True)
            assert await three.answered() == 429
            assert b"of one user are held at a time: send this after others of yours are answered" in three.told
            assert await has_room(app, BOB)
            for posted in (one, two):
                await posted.comes(body[-1:], ends=True)
                assert await posted.answered() == 200
            assert await has_room(app, ANA)
            assert not app._limiter.bytes
            assert not app._limiter.requests

    asyncio.run(main())


def test_what_becomes_of_many_small_values_counts_too():
    async def main() -> None:
        async with running() as app:
            small = json.dumps({**modern_call("held")["json"], "filler": [[]] * 100}).encode()
            held = Posted(app, **bearer(ANA), **{"mcp-name": "held"})
            await held.comes(small, ends=True)
            assert app._limiter.bytes[("user", "ana")] > 100 * 2 * 64
            assert not await has_room(app, ANA)
            too_much = Posted(app, **bearer(ANA))
            await too_much.comes(b"[" + b"[]," * 200 + b"[]]", ends=True)
            assert await too_much.answered() == 413  # alone more than there is ever room for
            held.task.cancel()

    asyncio.run(main())


async def _hangs_up(posted: Posted, _app: HttpApp) -> None:
    await posted.happens({"type": "http.disconnect"})
    assert await posted.answered() == 400


async def _is_no_message(posted: Posted, _app: HttpApp) -> None:
    await posted.comes(b"}", ends=True)
    assert await posted.answered() == 400


async def _is_too_slow(posted: Posted, _app: HttpApp) -> None:
    assert await posted.answered() == 408


async def _is_too_long(posted: Posted, _app: HttpApp) -> None:
    await posted.comes(b"x" * MOST, ends=True)
    assert await posted.answered() == 413


async def _is_cut_off(posted: Posted, _app: HttpApp) -> None:
    posted.task.cancel()
    await asyncio.wait([posted.task], timeout=BOUND)


async def _ends_with_the_user(posted: Posted, app: HttpApp) -> None:
    (managed,) = app._sessions._by_principal.values()
    managed.cancel()
    assert await posted.answered() == 503


ENDS = [_hangs_up, _is_no_message, _is_too_slow, _is_too_long, _is_cut_off, _ends_with_the_user]


@each_row("ends", ENDS)
def test_room_is_given_back_however_a_request_ends(ends: Any):
    async def main() -> None:
        slow = {"body_seconds": 0.05} if ends is _is_too_slow else {}
        async with running(**slow) as app:
            posted = Posted(app, **bearer(ANA))
            await posted.comes(b"x" * (MOST - 100))
            assert app._limiter.bytes[("user", "ana")] == MOST - 100
            await ends(posted, app)
            assert not app._limiter.bytes
            assert not app._limiter.requests

    asyncio.run(main())


class Slow:
    """A verifier that answers when a test says so."""

    def __init__(self) -> None:
        self.says = asyncio.Event()

    async def verify_token(self, token: str) -> AccessToken | None:
        await self.says.wait()
        return AccessToken(token=token, client_id="client", scopes=[], subject=token[9:12])


def test_whoever_is_not_known_yet_counts_for_where_they_come_from():
    async def main() -> None:
        verifier = Slow()
        async with running({}, verifier) as app:
            body = call(filled_to=9_000)
            said = {**bearer(ANA), "content-length": str(len(body))}
            mine = [Posted(app, address="2001:db8::1", **said), Posted(app, address="2001:db8::2", **said)]
            for posted in mine:
                await posted.comes(body, ends=True)
            more = Posted(app, address="2001:db8::3", **said)
            await more.comes(body, ends=True)
            assert await more.answered() == 429
            assert b"of one address" in more.told
            elsewhere = Posted(app, address="2001:db8:0:1::1", **{**said, **bearer(BOB)})
            await elsewhere.comes(body, ends=True)
            verifier.says.set()
            assert [await one.answered() for one in (*mine, elsewhere)] == [200, 200, 200]
            assert not app._limiter.bytes

    asyncio.run(main())


def test_forms_of_the_console_count_for_their_address_and_the_refusal_says_what_to_do():
    async def main() -> None:
        form = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        async with running() as app:
            one, other = (Posted(app, path="/console/sign-in", **form) for _ in range(2))
            await one.comes(b"token=" + b"x" * 12_000)
            await other.comes(b"token=" + b"x" * 12_000)
            assert await other.answered() == 429
            assert json.loads(other.told)["error"]["message"].startswith(f"At most {MOST} bytes of messages of one")
            elsewhere = Posted(app, path="/console/sign-in", address="127.0.0.2", **form)
            await elsewhere.comes(b"token=" + b"x" * 12_000, ends=True)
            assert await elsewhere.answered() == 401
            await one.comes(b"", ends=True)
            assert await one.answered() == 401
            assert not app._limiter.bytes
            moved = Posted(app, path="/console", **form)
            assert await moved.answered() == 307  # what the console itself refuses is told as it was

    asyncio.run(main())


def test_calls_of_a_session_whose_client_has_hung_up_count_until_they_are_over():
    """The handshake revisions go on with a call: a client that comes and goes would have any number of them."""

    async def main() -> None:
        gateway = StandIn({"tokens": TOKENS})
        limits = HttpLimits(requests=3)
        async with serving(gateway, limits=limits) as url, httpx2.AsyncClient(timeout=BOUND) as client:
            session = await opened(client, url, ANA)
            for number in range(3):
                await _hung_up(client, url, session, number, gateway)
            async with asyncio.timeout(BOUND):
                while (busy := await client.post(url, json=listed(), headers=session)).status_code != 429:
                    pass
            assert "3 requests of one user" in busy.text
            await opened(client, url, BOB)
            gateway.let_go.set()
            async with asyncio.timeout(BOUND):
                while (await client.post(url, json=listed(), headers=session)).status_code == 429:
                    pass

    asyncio.run(main())


async def _hung_up(
    client: httpx2.AsyncClient, url: str, session: dict[str, str], number: int, gateway: StandIn
) -> None:
    gateway.held.clear()
    held = {"jsonrpc": "2.0", "id": f"h{number}", "method": "tools/call", "params": {"name": "held", "arguments": {}}}
    async with client.stream("POST", url, json=held, headers=session) as response:
        assert response.status_code == 200
        await asyncio.wait_for(gateway.held.wait(), BOUND)


def test_a_request_that_goes_on_while_its_client_is_asked_counts_until_it_is_over():
    able = SimpleNamespace(elicitation={}, sampling=None, roots=None)
    session = SimpleNamespace(client_capabilities=able, can_send_request=False, protocol_version=MODERN)

    async def main() -> None:
        places, held, origin, goes_on = (
            RequestLimiter(HttpLimits()),
            PausedRequests(),
            CallOrigin(session=session),
            asyncio.Event(),
        )
        place = places.create_reservation({"client": ("127.0.0.1", 1)})
        ctx = SimpleNamespace(request=SimpleNamespace(scope={RESERVATION_KEY: place}))

        async def run() -> str:
            PAUSED_REQUESTS[origin].has_question.set()
            await goes_on.wait()
            return "done"

        async def round_of(state: str | None) -> Any:
            params = types.InputResponseRequestParams(request_state=state)
            return await count_request_middleware(ctx, lambda _ctx: held.run_in_rounds(origin, params, run))

        asked = await round_of(None)
        assert sum(places.requests.values()) == 1
        PAUSED_REQUESTS[origin].has_question.clear()
        goes_on.set()
        assert await round_of(asked.request_state) == "done"
        assert not places.requests

    asyncio.run(main())


STEP = st.sampled_from(["enter", "leave", "belong", "hold"])


@given(st.lists(st.tuples(st.integers(0, 3), STEP, st.integers(0, 60), st.sampled_from("ab")), max_size=60))
def test_no_order_of_uses_holds_more_than_there_is_or_leaves_anything(steps: list[tuple[int, str, int, str]]):
    places = RequestLimiter(HttpLimits(held_bytes=100, requests=2))
    made = [places.create_reservation({"client": (f"10.0.0.{number % 2}", 1)}) for number in range(4)]
    uses: list[list[ExitStack]] = [[] for _ in made]
    for number, step, size, user in steps:
        if step == "enter" and (not uses[number] or len(uses[number]) < 2):
            uses[number].append(ExitStack())
            uses[number][-1].enter_context(made[number].keep_request_counted())
        elif step == "leave" and uses[number]:
            uses[number].pop().close()
        elif uses[number]:
            with contextlib.suppress(HttpError):
                made[number].assign_to_user_or_raise(user) if step == "belong" else made[number].grow_reservation_to(
                    size
                )
        in_use = [place for place, own in zip(made, uses, strict=True) if own]
        assert sum(places.requests.values()) == len(in_use)
        assert sum(places.bytes.values()) == sum(place._size for place in in_use)
    for own in uses:
        for one in own:
            one.close()
    assert not places.requests
    assert not places.bytes
