"""The time of a module: what its own worker counts is what the host's clock counts, which stands still for people."""

from __future__ import annotations

from typing import Any

import pytest
from module_servers import HUB, RESULT, servers
from suite import full_only
from waiting import within

from codemode import WorkerPool, create_modules_tool

SLEEP = "const sleep = (ms) => new Promise((done) => setTimeout(done, ms));\n"
LONG = "'took long'"  # what an answer says for which a worker counts 350 seconds


def answered(pool: WorkerPool, code: str, settings: Any = None, timeout_ms: int = 60_000) -> Any:
    tool = create_modules_tool(servers(), settings=settings, pool=pool)
    return within(tool.execute({"code": HUB + code, "limits": {"timeoutMs": timeout_ms}}))


@pytest.fixture
def asked(passing_time: Any) -> Any:
    """Make a person who takes long for a decision."""

    def deciding(is_approved: bool) -> Any:
        async def decides(_request: Any) -> dict[str, Any]:
            passing_time.skip(350)
            return {"approved": is_approved}

        return decides

    return deciding


@pytest.mark.parametrize(
    ("includes_tools", "is_approved", "value", "times"),
    [(True, True, "took long", 2), (True, False, "APPROVAL_DENIED", 1), (False, True, "took long", 1)],
)
def test_what_a_person_takes_is_not_the_programs_time(
    computing_pool: WorkerPool, asked: Any, includes_tools: bool, is_approved: bool, value: Any, times: int
):
    settings = {
        "approval": {"on_approval_required": asked(is_approved)},
        "execution_policy": {"timeout_includes_tools": includes_tools},
    }
    call = f"const last = await hub.gated({LONG}).catch((error) => error.code);\n{RESULT}last;"
    response = answered(computing_pool, f"for (let i = 0; i < {times}; i++) {{ {call} }}", settings)
    assert (response["result"], response["diagnostics"]) == (value, [])


def test_what_a_hook_keeps_the_loop_for_is_not_the_programs_time(computing_pool: WorkerPool, passing_time: Any):
    def keeps(_event: Any) -> None:
        passing_time.block(350)

    code = f"{RESULT}[await hub.echo({LONG}), await hub.echo({LONG})];"
    response = answered(computing_pool, code, {"lifecycle": {"on_nested_tool_call": keeps}})
    assert (response["result"], response["diagnostics"]) == (["took long"] * 2, [])


@pytest.mark.parametrize("end", ["for (;;) {}", "await sleep(600000)"])
def test_what_is_left_of_its_time_holds_behind_that_and_what_was_written_is_kept(
    computing_pool: WorkerPool, asked: Any, passing_time: Any, end: str
):
    def written(event: Any) -> None:
        if event.text == "two":
            passing_time.skip(61)

    code = f"{SLEEP}console.log('one'); await hub.gated({LONG}); console.log('two'); {end}"
    settings = {"approval": {"on_approval_required": asked(True)}, "lifecycle": {"on_console": written}}
    response = answered(computing_pool, code, settings, timeout_ms=200)
    assert response["diagnostics"][0]["code"] == "SANDBOX_LIMIT"
    assert [line["message"] for line in response["logs"]] == ["one", "two"]


ENDLESS = "console.log('one'); for (;;) {}"


@pytest.mark.parametrize(
    "code",
    [
        ENDLESS,
        f"setTimeout(() => {{ {ENDLESS} }}); await sleep(60000)",
        f"await hub.fails(1).catch(() => 0); {ENDLESS}",
        *full_only(
            f"await hub.echo(1); {ENDLESS}",
            f"await hub.nothing(); {ENDLESS}",
            f"await Promise.all([hub.echo(1), hub.echo(2).then(() => {{ {ENDLESS} }})])",
            f"({{ get then() {{ {ENDLESS} }} }}); await {{ then() {{ {ENDLESS} }} }}",
        ),
    ],
)
def test_wherever_a_program_does_not_end_its_worker_stops_it_and_keeps_what_was_written(
    computing_pool: WorkerPool, code: str
):
    response = answered(computing_pool, SLEEP + code, timeout_ms=200)
    assert response["diagnostics"][0]["code"] == "SANDBOX_LIMIT"
    assert [line["message"] for line in response["logs"]] == ["one"]
