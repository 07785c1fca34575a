"""Notices reach those who are to be told: signed, at least once, once ordinarily, and shown as failed at last."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from codemode_console import SlackWebhook, TokenAuth, Webhook, approval_console, verify_signature
from codemode_console.notices import NoticeSender, find_failed_notices
from codemode_console.notices import sender as sending
from codemode_console.notices.sender import RETRY_SECONDS, WebhookClient
from console_visitors import USERS, run
from http_server import Request, redirect, response
from notice_desk import BASE_URL, OK, Desk, bodies, header, receiver
from self_signed import self_signed
from stored_pauses import HOUR_MS, paused, request
from suite import each_row
from waiting import until

from codemode.stores import (
    ALL_TENANTS,
    FailedNotice,
    MemoryInterruptStore,
    SqliteInterruptStore,
    StoreUnavailableError,
    verify_audit,
)

SECRET = "the receiver's own 32 random bytes"
PATH = "/hooks/T0/B0/uRlThAtIsSeCrEt"
SUPPORT = [str(Path(__file__).parent), str(Path(__file__).parents[3] / "tests/support")]


def console(store: Any, *notify: Any) -> Any:
    return approval_console(store, auth=TokenAuth(USERS), notify=notify, base_url=BASE_URL)


def test_a_pause_is_told_signed_without_its_input_and_with_a_link_that_decides_nothing():
    async def scenario() -> None:
        store = MemoryInterruptStore()
        with receiver() as server:
            target = Webhook(server.on(PATH, OK), secret=SECRET)
            async with console(store, target).running():
                interrupt = paused(request("a", given={"iban": "DE02"}), request("b", tool="charge"))
                record_id = await store.put(interrupt, tenant="acme", app="desk", labels={"agent": "x"}, payload="p")
                await until(lambda: server.requests)
            (told,) = server.requests
        assert (told.method, header(told, "content-type")) == ("POST", "application/json")
        assert verify_signature(SECRET, told.headers, told.body)
        said = json.loads(told.body)
        assert (said["kind"], said["id"]) == ("waiting", header(told, "Codemode-Notice-Id"))
        assert said["link"] == f"{BASE_URL}/records/{record_id}"
        assert said["requests"] == [{"tool": name, "kind": interrupt.payload["kind"]} for name in ("refund", "charge")]
        about = said["record"]
        assert (about["id"], about["version"], about["tenant"], about["app"]) == (record_id, 1, "acme", "desk")
        assert about["labels"] == {"agent": "x"}
        (auth,) = [interrupt.continuation["auth"]]
        for secret in ("iban", "DE02", auth["nonce"], "token", "continuation", '"a"', '"p"', SECRET):
            assert secret.encode() not in told.body

    run(scenario)


def test_an_input_is_told_when_it_is_asked_for_and_a_long_one_in_part():
    async def scenario() -> None:
        with receiver() as server:
            url = server.on(PATH, OK)
            desk = Desk(Webhook(url, secret=SECRET, include_input=True), SlackWebhook(url, include_input=True))
            await desk.store.put(paused(request("a", given={"cents": 2**60}), request("b", given={"x": "y" * 99_999})))
            await desk.rounds()
            first, second = bodies(server)
        assert first["requests"][0]["input"] == {"cents": 2**60}
        assert first["requests"][1]["inputBeginning"].startswith('{"x": "yyy')
        assert len(server.requests[0].body) < 40_000
        assert str(2**60) in json.dumps(second)
        assert len(server.requests[1].body) < 10_000

    run(scenario)


def test_five_attempts_over_ten_minutes_and_then_it_is_shown_as_failed():
    async def scenario() -> None:
        with receiver() as server:
            broken = Webhook(server.on("/broken", response(b"", "500 Oh")), secret=SECRET, name="ops")
            works = SlackWebhook(server.on("/works", OK))
            desk = Desk(broken, works)
            record_id = await desk.store.put(paused("a"), tenant="acme")
            await desk.rounds()
            for number, seconds in enumerate(RETRY_SECONDS):
                record = await desk.store.record(record_id, tenant="acme")
                assert await find_failed_notices(desk.store, [record]) == {}
                await desk.move(seconds - 1)
                assert server.asked().count("POST /broken") == number + 1
                await desk.move(seconds * 0.1 + 2)
            assert sum(RETRY_SECONDS) == 600
            for _ in range(3):
                await desk.move(3600)
            assert (server.asked().count("POST /broken"), server.asked().count("POST /works")) == (5, 1)
            told = [one for one in server.requests if one.path == "/broken"]
            assert len({header(one, "Codemode-Notice-Id") for one in told}) == 1
            other = await desk.store.put(paused("b"), tenant="acme")
        records = (await desk.store.list(tenant="acme")).records
        found = await find_failed_notices(desk.store, records)
        assert {one.id for one in records} == {record_id, other}
        ((failed,),) = found.values()
        assert isinstance(failed, FailedNotice)
        assert (failed.target, failed.record_id, failed.attempts, failed.error) == (
            *("ops", record_id, 5),
            "it answered 500",
        )
        kinds = [line.kind async for line in desk.store.audit(tenant="acme", record_id=record_id)]
        assert kinds == ["put", "notice_failed"]
        assert await verify_audit(desk.store) is None

    run(scenario)


def test_what_one_target_does_is_nothing_to_the_others():
    async def hangs(_request: Request, reader: Any, _writer: Any) -> None:
        await reader.read()

    async def scenario() -> None:
        store = MemoryInterruptStore()
        with receiver() as gone:
            away = Webhook(gone.on("/x", OK), secret=SECRET)
        with receiver() as server:
            slow, works = SlackWebhook(server.on("/slow", hangs)), SlackWebhook(server.on("/works", OK))
            wrong = Webhook(server.on("/wrong", b"no HTTP at all\r\n\r\n"), secret=SECRET)
            async with console(store, away, slow, wrong, works).running():
                for number in range(9):
                    await store.put(paused(str(number)))
                await until(lambda: server.asked().count("POST /works") == 9)

    run(scenario)


@each_row(
    "answer, words",
    [
        (redirect("/works"), "it answered 302: redirects are not followed"),
        (redirect("/works", "308 Permanent Redirect"), "it answered 308: redirects are not followed"),
        (response(b"invalid_blocks", "400 Bad Request"), "it answered 400: invalid_blocks"),
        (response(b"uRlThAtIsSeCrEt", "404 Not Found"), "it answered 404"),
        (response(b"hooks_t", "404 Not Found"), "it answered 404: hooks_t"),
        (response(b"<b>no</b> " * 9999, "410 Gone"), "it answered 410"),
        (b"no HTTP at all\r\n\r\n", "it could not be reached (RemoteProtocolError)"),
        (b"", "it could not be reached (RemoteProtocolError)"),
    ],
)
def test_what_is_no_success_is_a_failure_in_words_of_ours(answer, words):
    async def scenario() -> None:
        with receiver() as server:
            server.on("/works", OK)
            async with WebhookClient(server.on(PATH, answer)) as post:
                failure = await post({}, b"{}")
            assert failure is not None
            assert failure.message == words
            assert server.asked() == [f"POST {PATH}"]

    run(scenario)


@pytest.mark.parametrize("status", ["200 OK", "500 Oh"])
def test_an_answer_without_end_is_not_read_to_its_end(status):
    async def endless(_request: Request, _reader: Any, writer: Any) -> None:
        writer.write(f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        while True:
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            await writer.drain()

    async def scenario() -> None:
        with receiver() as server:
            async with WebhookClient(server.on(PATH, endless)) as post:
                failure = await post({}, b"{}")
            assert (failure is None) == (status == "200 OK")
            assert await asyncio.to_thread(server.hung_up.wait, 60)

    run(scenario)


def test_an_answer_that_does_not_come_is_waited_for_so_long(monkeypatch):
    monkeypatch.setattr(sending, "_POST_TIMEOUT_SECONDS", 0.2)

    async def drips(_request: Request, _reader: Any, writer: Any) -> None:
        for one in b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 10_000:
            writer.write(bytes([one]))
            await writer.drain()
            await asyncio.sleep(0.01)

    async def scenario() -> None:
        with receiver() as server:
            async with WebhookClient(server.on(PATH, drips)) as post:
                failure = await post({}, b"{}")
            assert failure is not None
            assert failure.message.startswith("it did not answer within")

    run(scenario)


def test_a_certificate_that_nobody_vouches_for_is_told_nothing(tmp_path):
    key, certificate = self_signed("localhost")
    for name, text in (("key", key), ("certificate", certificate)):
        (tmp_path / name).write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    async def scenario() -> None:
        with receiver(tls=context) as server:
            async with WebhookClient(server.on(PATH, OK)) as post:
                failure = await post({}, b"{}")
            assert failure is not None
            assert (failure.message, server.requests) == ("its certificate is not trusted", [])

    run(scenario)


def test_a_receiver_that_wants_less_is_left_alone_for_so_long_as_it_says():
    async def scenario() -> None:
        with receiver() as server:
            url = server.on(PATH, response(b"", "429 Too Many Requests", retry_after="30"))
            desk = Desk(SlackWebhook(url))
            await desk.store.put(paused("a"))
            await desk.rounds()
            assert desk.slept == [30]
            await desk.move(20)
            assert len(server.requests) == 1
            server.on(PATH, OK)
            await desk.move(11)
            await desk.move(3600)
            assert len(server.requests) == 2

    run(scenario)


def test_what_is_decided_before_it_was_told_is_told_no_more():
    async def scenario() -> None:
        with receiver() as server:
            desk = Desk(SlackWebhook(server.on(PATH, response(b"", "500 Oh"))))
            await desk.store.put(paused("a"))
            await desk.store.put(paused("b", age_ms=HOUR_MS))
            await desk.rounds()
            await desk.store.decide({"a": {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
            await desk.move(2 * 3600)
            assert len(server.requests) == 2
            found = await find_failed_notices(desk.store, (await desk.store.list(tenant=ALL_TENANTS)).records)
            assert found == {}

    run(scenario)


def test_two_consoles_on_one_database_tell_each_pause_once(tmp_path):
    async def scenario() -> None:
        stores = [SqliteInterruptStore(tmp_path / "pauses.sqlite") for _ in range(3)]
        with receiver() as server:
            target = Webhook(server.on(PATH, OK), secret=SECRET)
            async with console(stores[0], target).running(), console(stores[1], target).running():
                for number in range(12):
                    await stores[2].put(paused(str(number)))
                counted = "SELECT COUNT(*) FROM codemode_notices WHERE state = 'sent'"
                with stores[2].watch() as watch:
                    while await stores[2]._run_read(lambda session: session.fetch_one(counted)) != (12,):
                        await watch.wait(0.05)
            assert len({one["record"]["id"] for one in bodies(server)}) == 12
            assert len(server.requests) == 12
        for store in stores:
            await store.aclose()

    run(scenario)


KILLED = """
import asyncio, sys
sys.path[:0] = {support}
from notice_desk import BASE_URL
from codemode.stores import SqliteInterruptStore
from codemode_console.notices import NoticeSender, Webhook

async def main():
    sender = NoticeSender(SqliteInterruptStore({path!r}), [Webhook({url!r}, secret={secret!r})], BASE_URL)
    await sender.deliver_until_cancelled()

asyncio.run(main())
"""


def test_one_that_is_killed_while_it_sends_is_followed_by_another_with_the_same_id(tmp_path):
    path = tmp_path / "pauses.sqlite"

    async def scenario() -> None:
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def taken_and_not_answered(_request: Request, reader: Any, _writer: Any) -> None:
            loop.call_soon_threadsafe(arrived.set)
            await reader.read()

        with receiver() as server:
            url = server.on(PATH, taken_and_not_answered)
            desk = Desk(Webhook(url, secret=SECRET), path=path)
            record_id = await desk.store.put(paused("a"))
            program = KILLED.format(support=SUPPORT, path=str(path), url=url, secret=SECRET)
            process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", program])
            try:
                await asyncio.wait_for(arrived.wait(), 60)
            finally:
                process.send_signal(signal.SIGKILL)
                assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
            server.on(PATH, OK)
            await desk.rounds()
            assert len(server.requests) == 1  # its lease is not over
            await desk.move(61 + 120)  # its process has begun it later than the time at which the desk's stands still
            first, second = server.requests
            assert header(first, "Codemode-Notice-Id") == header(second, "Codemode-Notice-Id")
            assert json.loads(second.body)["record"]["id"] == record_id
            await desk.rounds()
            assert len(server.requests) == 2
        await desk.store.aclose()

    run(scenario)


def test_what_was_sent_and_could_not_be_written_down_is_sent_again_with_the_same_id(monkeypatch):
    async def scenario() -> None:
        with receiver() as server:
            desk = Desk(Webhook(server.on(PATH, OK), secret=SECRET))
            outbox = type(desk.store.outbox("t"))
            await desk.store.put(paused("a"))

            async def away(*_: object, **__: object) -> bool:
                raise StoreUnavailableError("away")

            with monkeypatch.context() as patched:
                patched.setattr(outbox, "record_delivery", away)
                with pytest.raises(StoreUnavailableError):
                    await desk.rounds()
            await desk.move(59)
            await desk.move(2)
            assert len({one["id"] for one in bodies(server)}) == 1
            assert len(server.requests) == 2

    run(scenario)


def test_a_database_that_is_away_is_waited_for_and_told_of_once(monkeypatch, caplog):
    async def scenario() -> None:
        store, slept = MemoryInterruptStore(), list[float]()
        await store.put(paused("a"))
        outbox, asked = store.outbox, 0

        def away_for_a_while(target: str) -> Any:
            nonlocal asked
            asked += 1
            if asked <= 8:
                raise StoreUnavailableError("it is away")
            return outbox(target)

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr(store, "outbox", away_for_a_while)
        with receiver() as server:
            target = SlackWebhook(server.on(PATH, OK), name="ops")
            sending = asyncio.create_task(
                NoticeSender(store, [target], BASE_URL, sleep=sleep).deliver_until_cancelled()
            )
            await until(lambda: server.requests)
            sending.cancel()
            await asyncio.wait([sending])
        assert slept == [1, 2, 4, 8, 16, 30, 30, 30]
        told = [one for one in caplog.records if one.levelno >= logging.WARNING and one.name == "codemode.console"]
        assert [one.getMessage() for one in told] == ["notices for ops cannot be sent now: StoreUnavailableError"]

    run(scenario)


def test_no_secret_is_in_a_log_a_repr_or_the_database(caplog, tmp_path):
    path = tmp_path / "pauses.sqlite"

    async def scenario() -> None:
        caplog.set_level(logging.DEBUG)
        with receiver() as server:
            url = server.on(PATH, response(PATH.encode(), "500 Oh", location=PATH))
            other = Webhook(url + "?k=SeCrEt", secret=b"b" + b"y" * 9)
            targets = [Webhook(url, secret=SECRET), SlackWebhook(url), other]
            desk = Desk(*targets, path=path)
            store = desk.store
            await store.put(paused("a"))
            await desk.rounds()
            for seconds in RETRY_SECONDS:
                await desk.move(seconds * 1.1 + 1)
            assert len(server.requests) == 15
            said = [repr(one) for one in (*targets, desk.sender, console(store, *targets), targets[0].create_request)]
            lines = [repr(line) async for line in store.audit(tenant=ALL_TENANTS)]
        await store.aclose()
        assert sum("notice_failed" in line for line in lines) == 3
        assert sum("could not be delivered" in one.getMessage() for one in caplog.records) == 3
        kept = b"".join(one.read_bytes() for one in tmp_path.iterdir()).decode("latin-1")
        for text in (*said, *lines, caplog.text, kept):
            for secret in ("uRlThAtIsSeCrEt", "SeCrEt", SECRET, "yyyyyyyyy"):
                assert secret not in text

    run(scenario)


def test_the_proxy_of_the_environment_is_used_and_never_for_this_machine(monkeypatch):
    async def scenario() -> None:
        with receiver() as proxy, receiver() as server:
            proxy.on("http://hooks.test/x", OK)
            for name in ("http_proxy", "HTTP_PROXY"):
                monkeypatch.setenv(name, proxy.origin)
            for name in ("no_proxy", "NO_PROXY"):
                monkeypatch.setenv(name, "other.test")
            async with WebhookClient("http://hooks.test/x") as post:
                assert await post({}, b"{}") is None
            async with WebhookClient(server.on(PATH, OK)) as post:
                assert await post({}, b"{}") is None
            assert (proxy.asked(), server.asked()) == (["POST http://hooks.test/x"], [f"POST {PATH}"])

    run(scenario)
