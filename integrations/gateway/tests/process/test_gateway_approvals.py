"""Whole gateways over a real server: paused on one host and approved on another, or while no host was running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from approval_world import accept, answer_of, codes
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from gateway_clients import client_of
from mcp_servers.configured import quick
from waiting import within

from codemode.stores import ALL_TENANTS

CODE = (
    'import { note } from "@codemode/servers/quick";\n'
    'globalThis.__codemode_result__ = await note({ text: "first" }).catch((error) => error.code);'
)


def gateway(folder: Path, *, wait_ms: int = 1, **options: Any) -> Gateway:
    settings = GatewaySettings(state_folder=folder, approval_wait_ms=wait_ms)
    return Gateway(GatewayConfig((quick(),), settings), GatewayOptions(**options))


async def approved(store: Any) -> str:
    (record,) = (await store.list(tenant=ALL_TENANTS, state="waiting")).records
    (asked,) = record.requests
    assert (asked.input, record.labels["server"], record.labels["tool"]) == ({"text": "first"}, "quick", "note")
    await store.decide({asked.interrupt_id: {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
    return record.id


async def called(client: Any, **arguments: Any) -> dict[str, Any]:
    return answer_of(await client.call_tool("codemode_run", arguments))


def test_a_call_approved_on_another_host_runs_once_and_both_report_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            gateway(tmp_path) as one,
            gateway(tmp_path) as other,
            client_of(one) as a,
            client_of(other, "legacy") as b,
        ):
            waits = (await called(a, code=CODE))["waiting"]
            assert (await called(b, code=CODE))["waiting"] == waits
            assert await approved(other.store) == waits["id"]
            outcome = await one.store.outcome(waits["id"], tenant="local", timeout_ms=60_000)
            told = [await called(client, resume=waits["id"]) for client in (a, b, a)]
            assert [one["result"] for one in told] == [outcome["result"]] * 3
            assert codes(told[0]) == []

    within(scenario())


def test_the_second_request_may_reach_a_newly_started_host(tmp_path: Path) -> None:
    async def asked(_ctx: Any, _params: Any) -> Any:
        raise AssertionError

    async def scenario() -> None:
        async with gateway(tmp_path) as one, client_of(one, elicitation_callback=asked) as client:
            first = await client.session.call_tool("codemode_run", {"code": CODE}, allow_input_required=True)
        async with gateway(tmp_path) as other, client_of(other, elicitation_callback=asked) as client:
            answer = await client.session.call_tool(
                "codemode_run",
                {"code": CODE},
                input_responses={key: accept(input='{"text": "edited"}') for key in first.input_requests},
                request_state=first.request_state,
                allow_input_required=True,
            )
            assert "edited" in str(answer_of(answer)["result"])

    within(scenario())


def test_a_gateway_over_http_resumes_calls_decided_while_it_was_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path) as one, client_of(one) as client:
            waits = (await called(client, code=CODE))["waiting"]
            await one.store.aclose()
        async with gateway(tmp_path) as decider:  # over stdio nothing goes on before somebody calls
            record_id = await approved(decider.store)
        assert record_id == waits["id"]
        async with gateway(tmp_path, over_http=True) as later:
            outcome = await later.store.outcome(record_id, tenant="local", timeout_ms=60_000)
            assert "first" in str(outcome["result"])

    within(scenario())


def test_the_reason_of_a_denial_reaches_the_program(tmp_path: Path) -> None:
    code = CODE.replace("error.code", "({ error })")

    async def scenario() -> None:
        async with gateway(tmp_path) as one, client_of(one) as client:
            waits = (await called(client, code=code))["waiting"]
            (record,) = (await one.store.list(tenant=ALL_TENANTS, state="waiting")).records
            denied = {"approved": False, "reason": "not before the release"}
            await one.store.decide({record.requests[0].interrupt_id: denied}, actor="ana", tenant=ALL_TENANTS)
            await one.store.outcome(waits["id"], tenant="local", timeout_ms=60_000)
            told = await called(client, resume=waits["id"])
            assert "not before the release" in told["result"]["error"]["message"]

    within(scenario())
