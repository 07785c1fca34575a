"""One user has a share of the gateway's store: with as many programs waiting, another one does not begin."""

from __future__ import annotations

from pathlib import Path

from approval_world import ONE, answer_of, codes, hosts, mute
from codemode_gateway.gateway.principals import Principal
from waiting import within

from codemode.stores import ALL_TENANTS


async def call(client, **arguments):
    return answer_of(await client.call_tool("codemode_run", arguments))


def test_a_user_with_too_many_waiting_programs_is_refused_before_one_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        path, ben = tmp_path / "store.sqlite", Principal("ben")
        async with (
            hosts(path=path, wait_ms=1, max_waiting=2) as (shop, store, one),
            mute(one) as mine,
            hosts(path=path, wait_ms=1, max_waiting=2, principal=ben) as (_, _, two),
            mute(two) as theirs,
        ):
            waits = [(await call(mine, code=f"{ONE} // {number}"))["waiting"] for number in range(2)]
            full = await call(mine, code=f"{ONE} // another")
            assert codes(full) == ["TOO_MANY_WAITING"]
            assert "2 programs of this user already wait" in full["diagnostics"][0]["message"]
            assert shop.done == []
            # The same program is still told of, and other users are not refused.
            assert (await call(mine, code=f"{ONE} // 1"))["waiting"] == waits[1]
            assert codes(await call(theirs, code=ONE)) == ["WAITING_FOR_APPROVAL"]
            await store.withdraw(waits[0]["id"], actor="ana", tenant=ALL_TENANTS)
            assert codes(await call(mine, code=f"{ONE} // another")) == ["WAITING_FOR_APPROVAL"]

    within(scenario())
