"""Whoever guesses ids learns nothing: what is another tenant's is, to the letter, what there is not."""

from __future__ import annotations

import pytest
from console_houses import AS_JSON, BOB, House
from console_visitors import run

PATHS = ["", "/ending", "/value?of=program", "/value?of=requests/1/asked", "/requests/q", "/requests/1", "/nothing"]
BODIES = [
    {"data": {"decision": "deny", "action": "withdraw", "form_token": "x", "version": "1-1", "state": "pending"}},
    {"json": {"decision": "deny", "form_token": "x", "version": "1", "shown": "x"}},
    {"content": b"{", "headers": {"content-type": "application/json"}},
]


@pytest.mark.parametrize("accept", [AS_JSON, {"accept": "text/html"}, {}], ids=["json", "page", "any"])
def test_a_foreign_record_is_an_unknown_one_to_the_letter(accept: dict[str, str]) -> None:
    async def work() -> None:
        house = House()
        foreign = await house.put("q", tenant="acme")
        unknown = "f" * len(foreign)
        async with house.browser(BOB) as bob:
            for path in PATHS:
                for method, body in [("GET", {}), ("HEAD", {}), *(("POST", one) for one in BODIES)]:
                    settings = {**body, "headers": {**accept, **body.get("headers", {})}}
                    one, other = [
                        await bob.request(method, f"/records/{name}{path}", **settings) for name in (foreign, unknown)
                    ]
                    said = one.text.replace(foreign, unknown)
                    assert (one.status_code, said) == (other.status_code, other.text), (method, path)
                    assert one.headers.items() == other.headers.items()
                    assert one.status_code in (400, 404, 405)
        assert [one.state for one in (await house.store.record(foreign, tenant="acme")).requests] == ["waiting"]

    run(work)
