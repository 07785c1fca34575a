"""A change that somebody sends is made or refused: none is passed over while the rest is approved."""

from __future__ import annotations

from typing import Any

import pytest
from console_houses import AS_JSON, House
from console_visitors import hidden, run
from stored_pauses import Catalog, paused, request
from suite import each_row

from codemode.stores import StoreUnavailableError

SHOWN = {"order": "A-17", "cents": 90_000, "to": {"name": "ada"}, "lines": ["a"]}
FIELDS: dict[str, Any] = {
    "order": {"type": "string"},
    "cents": {"type": "integer"},
    "to": {"type": "object", "properties": {"name": {"type": "string"}}},
    "lines": {"type": "array", "items": {"type": "string"}},
}
OBJECT = {"type": "object", "properties": FIELDS}
# Forms without fields: of no schema, and of what a form has no controls for.
WITHOUT_FIELDS: list[Any] = [
    None,
    {},
    {"type": "object"},
    {"allOf": [OBJECT, OBJECT]},
    {**OBJECT, "patternProperties": {"x": {}}},
    {**OBJECT, "anyOf": [{}, {}]},
]
NO_ITEMS = ["cents", "input", "value", "Cents", "cents/", "was:cents", "state:cents", "count:", "__proto__", ""]
STRANGE = [
    "/to", "/lines", "#", "#/to", "/cents/0", "/to/name/x", "/lines/7", "choice:/cents", "choice:/to", "count:/cents",
    "count:/to", "/lines/-",
]  # fmt: skip


async def answered(schema: Any, name: str, decision: str) -> tuple[int, Any]:
    house = House()
    tool = Catalog(schema)
    record = await house.store.put(paused(request("q", given=SHOWN)), tenant="acme", tool=tool)
    async with house.browser() as ana:
        page = (await ana.get(f"/records/{record}")).text
        kept = {one: hidden(page, one) for one in ("version", "shown")}
        token = page.split("/requests/q")[1].split('name="form_token" value="')[1].split('"')[0]
        sent = {**kept, "form_token": token, "decision": decision, name: "9"}
        answer = await ana.post(f"/records/{record}/requests/q", data=sent, headers=AS_JSON)
    (one,) = (await house.store.record(record, tenant="acme")).requests
    return answer.status_code, one.decision


@each_row("decision", ["edit", "approve"])
@each_row("name", ["/cents", "#/cents", "#", "state:/cents", "was:/cents", "/lines/0"])
def test_a_form_without_fields_takes_none(name: str, decision: str) -> None:
    async def work() -> None:
        for schema in WITHOUT_FIELDS:
            status, decided = await answered(schema, name, decision)
            assert (status, decided) == (400, None), schema

    run(work)


@each_row("name", [*NO_ITEMS, *STRANGE])
def test_what_is_no_item_of_the_form_decides_nothing(name: str) -> None:
    async def work() -> None:
        for decision in ("edit", "approve"):
            assert await answered(OBJECT, name, decision) == (400, None)

    run(work)


def test_what_is_an_item_arrives() -> None:
    async def work() -> None:
        status, decided = await answered(OBJECT, "/cents", "edit")
        assert (status, decided) == (200, {"approved": True, "input": {**SHOWN, "cents": 9}})

    run(work)


@pytest.mark.parametrize("away_from", ["record", "decide"])
def test_a_database_that_goes_away_among_many_is_told_of_those_alone(away_from: str) -> None:
    async def work() -> None:
        house = House()
        names = [f"q{number}" for number in range(4)]
        records = [await house.put(name) for name in names]
        before, calls = getattr(house.store, away_from), list[int]()

        async def away(*said: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) > 2:
                raise StoreUnavailableError("the database is away")
            return await before(*said, **named)

        async with house.browser() as ana:
            chosen = [f"{record}/{name}" for record, name in zip(records, names, strict=True)]
            page = (await ana.get("/")).text
            token = page.split('action="/many"')[1].split('name="form_token" value="')[1].split('"')[0]
            sent: Any = {"form_token": token, "decision": "approve", "request": chosen}
            shown = (await ana.post("/many", data=sent, headers=AS_JSON)).json()
            sent |= {"form_token": shown["formToken"], "request": [one["request"] for one in shown["requests"]]}
            setattr(house.store, away_from, away)
            answer = await ana.post("/many/decide", data=sent, headers=AS_JSON)
            setattr(house.store, away_from, before)
        assert answer.status_code == 200
        told = answer.json()
        assert [one["id"] for one in told["decided"]] == names[:2]
        assert [(one["id"], one["error"]["status"]) for one in told["notDecided"]] == [(one, 503) for one in names[2:]]
        states = [(await house.store.record(one, tenant="acme")).requests[0].state for one in records]
        assert states == ["decided", "decided", "waiting", "waiting"]

    run(work)
