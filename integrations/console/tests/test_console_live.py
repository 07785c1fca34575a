"""What happens is told as it happens: to whom it belongs, from where they were, and to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from codemode_console import TokenAuth, User
from codemode_console.errors import Problem
from codemode_console.pages import event_stream
from codemode_console.pages.event_stream import MAX_REMEMBERED_CHANGES, ChangeFeed
from console_houses import BOB, USERS, House
from console_listeners import listening
from console_visitors import EVE, run
from stored_pauses import paused
from suite import each_row
from waiting import until

from codemode.stores import MemoryInterruptStore, SqliteInterruptStore, StoreUnavailableError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "REAUTHENTICATE_SECONDS", 0.05)
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.05)


def feed_of(monkeypatch: pytest.MonkeyPatch) -> list[ChangeFeed]:
    """Return the feeds of the consoles that are made from here on."""
    made: list[ChangeFeed] = []

    def feed(store: Any) -> ChangeFeed:
        made.append(ChangeFeed(store))
        return made[-1]

    monkeypatch.setattr(event_stream, "ChangeFeed", feed)
    return made


def test_each_hears_of_their_own_tenants_alone() -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana, house.browser(BOB) as bob, house.browser(EVE) as eve:
            browsers = [one.cookies for one in (ana, bob, eve)]
            async with (
                listening(house.app, browsers[0]) as of_ana,
                listening(house.app, browsers[1]) as of_bob,
                listening(house.app, browsers[2]) as of_eve,
            ):
                assert of_ana.headers["content-type"].startswith("text/event-stream")
                assert of_ana.headers["cache-control"] == "no-store"
                assert "content-security-policy" in of_ana.headers
                names = {"a": "acme", "x": "initech", "g": "globex", "z": "umbrella", "b": "acme", "y": "initech"}
                for one in (of_ana, of_bob, of_eve):
                    assert (await one.next())["id"] == "0"
                ids = {name: await house.put(name, tenant) for name, tenant in names.items()}
                assert await of_ana.changes(3) == [(ids[name], "put") for name in "agb"]
                assert await of_bob.changes(2) == [(ids[name], "put") for name in "xy"]
                assert await of_eve.changes(6) == [(one, "put") for one in ids.values()]
                foreign = [ids[name] for name in "xzy"]
                assert not any(one.encode() in b"".join(of_ana.sent) for one in foreign)

    run(work)


def test_a_reconnect_to_another_console_misses_nothing(tmp_path: Any) -> None:
    async def work() -> None:
        houses = [House(SqliteInterruptStore(tmp_path / "a.sqlite")) for _ in range(2)]
        async with houses[0].browser() as ana, houses[1].browser(BOB) as bob:
            async with listening(houses[0].app, ana.cookies) as listener:
                await listener.next()
                first = await houses[1].put("a")
                assert await listener.changes(1) == [(first, "put")]
            others = [await houses[0].put(f"x{number}", "initech") for number in range(3)]
            (missed,) = [await houses[1].put("b")]
            for said in ({"last_event_id": "1"}, {"after": "1"}, {"last_event_id": "1", "after": "0"}):
                async with listening(houses[1].app, ana.cookies, **said) as listener:
                    assert await listener.changes(1) == [(missed, "put")]
            async with listening(houses[1].app, bob.cookies, after="0") as of_bob:
                assert await of_bob.changes(3) == [(one, "put") for one in others]
            async with listening(houses[1].app, ana.cookies, after="999999999") as listener:
                # From another database's time: the end of this one is where it goes on from.
                await listener.next()
                later = await houses[0].put("c")
                assert await listener.changes(1) == [(later, "put")]
            # What a page knows, and what is told behind it, is all there is.
            page = (await ana.get("/")).text
            head = await houses[0].store.changes_head()
            assert f'data-sequence="{head}"' in page
        for house in houses:
            await house.store.aclose()

    run(work)


def test_who_is_far_behind_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_console.pages.event_stream.MAX_REMEMBERED_CHANGES", 3)
    feeds = feed_of(monkeypatch)

    async def work() -> None:
        house = House()
        async with house.browser() as ana, listening(house.app, ana.cookies) as listener:
            await listener.next()
            await until(lambda: feeds[0].head == 0)
            told = len(listener.sent)
            listener.takes.clear()  # nothing is taken, and nothing is kept for who takes nothing
            ids = [await house.put(str(number)) for number in range(12)]
            await until(lambda: feeds[0].head == 12)
            assert feeds[0].find_changes_after(0) is None
            assert feeds[0].find_changes_after(9) is not None
            assert len(listener.sent) == told
            listener.takes.set()
            assert await listener.changes(12) == [(one, "put") for one in ids]
            more = await house.put("more")
            assert await listener.changes(1) == [(more, "put")]

    run(work)


def test_a_client_that_is_gone_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = feed_of(monkeypatch)
    monkeypatch.setattr(event_stream, "SEND_TIMEOUT_SECONDS", 0.05)

    async def work() -> None:
        house = House()
        before = asyncio.all_tasks()
        async with house.browser() as ana:
            for how in ("goes", "takes nothing", "asks for the head"):
                method = "HEAD" if how.startswith("asks") else "GET"
                async with listening(house.app, ana.cookies, method=method) as listener:
                    if how == "goes":
                        assert len(feeds[0]) == 1
                        listener.go()
                    elif how == "takes nothing":
                        listener.takes.clear()
                        await house.put("a")
                    await listener.end()
                    assert len(feeds[0]) == 0
            assert feeds[0].head is None
            await until(lambda: _own(asyncio.all_tasks() - before) == set())

    run(work)


def _own(tasks: set[Any]) -> set[Any]:
    # The library's own look for the end of the server is one task for the process.
    return {one for one in tasks if "_shutdown_watcher" not in repr(one)}


@each_row("how", ["signed out", "expired", "taken off the list", "rights changed", "auth fails"])
def test_a_connection_ends_with_the_right_to_it(how: str) -> None:
    async def work() -> None:
        users: dict[str, Any] = {"ana": User("ana", ["acme"])}

        async def who(_request: Any) -> User | None:
            return users["ana"]

        known = TokenAuth(USERS)
        auth = who if how in ("rights changed", "auth fails") else known
        house = House(auth=auth)
        async with house.browser() if auth is known else house.client() as ana:
            page = await ana.get("/")
            async with listening(house.app, ana.cookies) as listener:
                await listener.next()
                if how == "signed out":
                    token = page.text.split('name="form_token" value="')[1].split('"')[0]
                    assert (await ana.post("/sign-out", data={"form_token": token})).status_code == 303
                elif how == "expired":
                    house.clock.now += 12 * 3600 + 2
                elif how == "taken off the list":
                    known._users.clear()
                elif how == "rights changed":
                    users["ana"] = User("ana", ["other"])
                else:
                    del users["ana"]
                assert (await listener.end())["event"] == "ended"
                told = len(listener.sent)
                await house.put("a")
                assert len(listener.sent) == told
        if auth is known:
            async with listening(house.app, ana.cookies) as listener:
                assert listener.status == 401

    run(work)


def test_a_connection_does_not_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_CONNECTION_SECONDS", 0.1)

    async def work() -> None:
        house = House()
        async with house.browser() as ana, listening(house.app, ana.cookies) as listener:
            assert "event" not in await listener.end()  # it comes again by itself

    run(work)


def test_places_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def small_feed(store: Any) -> ChangeFeed:
        return ChangeFeed(store, max_per_user=2, max_subscribers=3)

    monkeypatch.setattr(event_stream, "ChangeFeed", small_feed)

    async def work() -> None:
        house = House()
        async with (
            house.browser() as ana,
            house.browser(BOB) as bob,
            listening(house.app, ana.cookies),
            listening(house.app, ana.cookies) as second,
        ):
            async with listening(house.app, ana.cookies) as third:
                assert (third.status, third.headers["retry-after"]) == (429, "30")
            async with listening(house.app, bob.cookies), listening(house.app, bob.cookies) as full:
                assert (full.status, full.headers["retry-after"]) == (503, "30")
            second.go()
            await second.end()
            async with listening(house.app, ana.cookies) as again:
                assert again.status == 200

    run(work)


@each_row(
    "asked, status",
    [
        ({"last_event_id": "-1"}, 400),
        ({"last_event_id": "x"}, 400),
        ({"after": "9" * 19}, 400),
        ({"last_event_id": "1\u0661"}, 400),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"cookie": "codemode_console=forged"}, 401),
    ],
)
def test_what_is_no_listening_is_refused(asked: dict[str, str], status: int) -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana, listening(house.app, ana.cookies, **asked) as listener:
            assert listener.status == status

    run(work)


def test_a_database_that_goes_away_ends_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = feed_of(monkeypatch)

    async def work() -> None:
        house = House()
        async with house.browser() as ana:
            async with listening(house.app, ana.cookies) as listener:
                await listener.next()
                await until(lambda: feeds[0].head is not None)
                monkeypatch.setattr(house.store, "changes", _away)
                monkeypatch.setattr(feeds[0], "find_changes_after", lambda _sequence: None)
                assert "event" not in await listener.end()
            monkeypatch.undo()

    run(work)


async def _away(**_asked: Any) -> AsyncGenerator[Any]:
    raise StoreUnavailableError("gone")
    yield


def test_a_feed_reads_on_after_the_database_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_console.pages.event_stream._RETRY_SECONDS", 0.01)

    async def work() -> None:
        store = MemoryInterruptStore()
        feed, reads = ChangeFeed(store), store.changes
        failures = iter([True, True])

        def changes(**asked: Any) -> Any:
            return _away() if next(failures, False) else reads(**asked)

        monkeypatch.setattr(store, "changes", changes)
        with feed.subscribe("ana"):
            await until(lambda: feed.head is not None)
            record_id = await store.put(paused("a"), tenant="acme")
            await until(lambda: feed.head == 1)
            (change,) = feed.find_changes_after(0) or []
            assert (change.record_id, change.tenant) == (record_id, "acme")
        assert feed.find_changes_after(0) is None

    run(work)


def test_a_feed_remembers_so_much_and_no_more() -> None:
    async def work() -> None:
        store = MemoryInterruptStore()
        feed = ChangeFeed(store, max_per_user=1)
        with feed.subscribe("ana"):
            with pytest.raises(Problem), feed.subscribe("ana"):
                pass
            await until(lambda: feed.head == 0)
            assert feed.find_changes_after(0) == []
        assert MAX_REMEMBERED_CHANGES >= 500

    run(work)
