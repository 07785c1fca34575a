"""What the probes of the gateway say, and how little it costs to ask them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from codemode_gateway.gateway import http_app as health
from codemode_gateway.gateway.http_app import create_http_app
from gateway_doors import TOKENS, StandIn

from codemode import WorkerPool
from codemode.errors import CodeModeConcurrencyError, CodeModeWorkerError


class Lease:
    def kill_and_release(self) -> None: ...
    def refill_spares(self) -> None: ...


class Pool(WorkerPool):
    """A pool without processes, that counts who asks it."""

    asked = 0
    error: Exception | None = None

    async def acquire(self, memory_limit_bytes: int, on_saturation: str | None = None, _timeout_ms: int = 0) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Lease()


def answers(*, error: Exception | None = None, store: Any = None, times: int = 1) -> tuple[list[httpx2.Response], int]:
    async def main() -> tuple[list[httpx2.Response], int]:
        gateway, pool = StandIn({"tokens": TOKENS}), Pool({"max_workers": 1})
        gateway.options.pool, pool.error = pool, error
        app = create_http_app(gateway)
        transport = httpx2.ASGITransport(app, client=("10.0.0.9", 1))
        async with app.running(), httpx2.AsyncClient(transport=transport, base_url="http://10.0.0.7:8765") as client:
            if store is not None:
                gateway.store = store
            found = await asyncio.gather(*(client.get("/readyz") for _ in range(times)))
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            pool.close()
            return list(found), pool.asked

    return asyncio.run(main())


class Away:
    async def list(self, **_: Any) -> None:
        raise OSError("password=hunter2 refused")


def test_it_is_ready_where_the_store_answers_and_a_worker_starts():
    (answer,), _ = answers()
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "store": "ok", "workers": "ok"})


@pytest.mark.parametrize(
    ("how", "failed"), [({"store": Away()}, "store"), ({"error": CodeModeWorkerError("none at /srv/x")}, "workers")]
)
def test_what_fails_is_named_and_nothing_else_is_told(how: dict[str, Any], failed: str):
    (answer,), _ = answers(**how)
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "store": "ok", "workers": "ok", failed: "failed"}


def test_both_are_looked_at_side_by_side_so_that_a_probe_has_its_answer_in_time():
    both = asyncio.Barrier(2)

    class Slow(Pool):
        async def acquire(self, memory_limit_bytes: int, on_saturation: str | None = None, _timeout_ms: int = 0) -> Any:
            await both.wait()
            return Lease()

    class Store:
        async def list(self, **_: Any) -> None:
            await both.wait()

    async def main() -> int:
        gateway = StandIn({"tokens": TOKENS})
        gateway.options.pool = pool = Slow({"max_workers": 1})
        gateway.store = Store()
        status, _ = await health.HealthProbes(gateway).get_response("/readyz")
        pool.close()
        return status

    assert asyncio.run(main()) == 200


def test_however_many_ask_it_is_looked_at_once():
    found, asked = answers(times=50)
    assert {one.status_code for one in found} == {200}
    assert asked == 1


def test_who_has_no_room_is_busy_and_not_broken():
    (answer,), _ = answers(error=CodeModeConcurrencyError("all 1 code mode workers are busy"))
    assert answer.status_code == 200


def test_what_no_part_of_the_gateway_expects_is_in_its_log(caplog: pytest.LogCaptureFixture):
    """The server that runs it is told to say nothing, as all that it says of clients is theirs to choose."""

    async def main() -> int:
        app = create_http_app(StandIn({"tokens": TOKENS}))

        async def answer(_path: str) -> Any:
            raise LookupError("where it broke")

        app._health.get_response = answer
        transport = httpx2.ASGITransport(app, client=("10.0.0.9", 1), raise_app_exceptions=False)
        async with app.running(), httpx2.AsyncClient(transport=transport, base_url="http://10.0.0.7:8765") as client:
            return (await client.get("/readyz")).status_code

    assert asyncio.run(main()) == 500
    ((_, error, _),) = [one.exc_info for one in caplog.records if one.exc_info is not None]
    assert str(error) == "where it broke"
