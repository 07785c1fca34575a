"""Saved programs in the console: who sees them, and what confirming and disabling needs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from console_houses import AS_JSON, BOB, House
from console_visitors import run

from codemode import CodeModeToolError, ProgramLibrary, Tool, create_code_mode_tool
from codemode.stores import ALL_TENANTS

HOSTILE = "<script>alert(1)</script>\u202e"


def total(week: int) -> int:
    """The total."""
    return week


async def saved_in(house: House) -> None:
    library = ProgramLibrary(house.store, owner="acme")
    create_code_mode_tool({"total": total}, library=library)
    await library.save("report", "return 1", description=f"Reports. {HOSTILE}")
    await library.save("report", f"// {HOSTILE}\nreturn tools.total(input)")
    tool = create_code_mode_tool({"total": lambda week: week}, library=library)
    with pytest.raises(CodeModeToolError, match="stale"):
        await tool.execute("return await saved.report({ week: 1 })")


async def token_of(browser: Any, path: str) -> str:
    return (await browser.get(path, headers=AS_JSON)).json()["formToken"]


def test_programs_are_listed_and_shown_to_those_whose_tenant_it_is() -> None:
    async def work() -> None:
        house = House()
        await saved_in(house)
        async with house.browser() as ana:
            found = (await ana.get("/saved")).text
            assert 'href="/saved/report?owner=acme"' in found
            assert "Stale" in found
            assert re.findall(r'<a href="([^"]*)" aria-current="page"', found) == ["/saved"]
            text = (await ana.get("/saved/report?owner=acme")).text
            assert "is gone" in text or "has changed" in text
            assert "-return 1" in text
            assert "<script>alert" not in text
            assert "\u202e" not in text
            assert ">Confirm</button>" in text
            versions = (await ana.get("/saved/report?owner=acme", headers=AS_JSON)).json()["versions"]
            assert [one["version"] for one in versions] == [2, 1]
        async with house.browser(BOB) as bob:
            assert "report" not in (await bob.get("/saved")).text
            assert (await bob.get("/saved/report?owner=acme")).status_code == 404

    run(work)


def test_a_person_confirms_what_was_shown_and_disables() -> None:
    async def work() -> None:
        house = House()
        await saved_in(house)
        path = "/saved/report?owner=acme"
        library = ProgramLibrary(house.store, owner="acme")
        async with house.browser() as ana:
            token = await token_of(ana, path)
            assert (await ana.post(path, data={"action": "confirm"})).status_code == 403
            assert (await ana.post(path, data={"action": "burn", "form_token": token})).status_code == 400
            assert (await ana.post(path, data={"action": "confirm", "form_token": token})).status_code == 303
            kept = await library.get("report")
            assert (kept.is_stale, kept.current.confirmed_by) == (False, "ana")
            assert (await ana.post(path, data={"action": "disable", "form_token": token})).status_code == 403
            token = await token_of(ana, path)
            assert (await ana.post(path, data={"action": "disable", "form_token": token})).status_code == 303
            assert (await library.get("report")).is_disabled
            assert re.search(">Enable</button>", (await ana.get(path)).text)
        lines = [line async for line in house.store.audit(tenant=ALL_TENANTS)]
        assert [line.kind for line in lines if line.kind.startswith("program_")] == [
            "program_confirmed",
            "program_disabled",
        ]

    run(work)


def test_a_card_says_which_saved_program_makes_its_call() -> None:
    async def work() -> None:
        house = House()
        library = ProgramLibrary(house.store, owner="acme")
        options: Any = {"approval": {"mode": "interrupt"}, "continuation": {"guard": house.store.guard}}
        tool = create_code_mode_tool([Tool.from_function(total, needs_approval=True)], options, library=library)
        await library.save("report", "const { week } = input;\nreturn tools.total({ week })")
        pause = await tool.execute("return await saved.report({ week: 1 })")
        record = await house.store.put(pause, tool=tool, tenant="acme")
        async with house.browser() as ana:
            text = (await ana.get(f"/records/{record}")).text
            assert text.count("Made by the saved program report:2") == 2
            told = (await ana.get(f"/records/{record}", headers=AS_JSON)).json()
            assert [(one["program"], one["line"]) for one in told["calls"]][1:] == [("report:2", None)]

    run(work)
