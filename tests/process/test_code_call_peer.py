"""What the published CodeCall plugin answers to 52 scripts, beside what this one does; where they differ, the reason.

The answers were made from its source (the file says how) and are data; nothing of it runs here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from codemode import CodeCallToolset, Tool, create_code_call_tools

PEER = json.loads((Path(__file__).parents[1] / "data" / "codecall_peer_answers.json").read_text(encoding="utf-8"))
ROWS = PEER["answers"]
IDS = [f"{at:02}" for at in range(len(ROWS))]
CONTEXT = {"region": "north"}

FUNCTIONS = "function declarations are allowed: a script may give its parts names"
STATUS = "syntax errors and failed tools have statuses of their own, as the documentation has it"
LOOPS = "secure has no loops, as the documentation has it; the plugin runs bounded ones"
GLOBALS = "what the language has is there: errors, Promise, Set, the console and the context"
DYNAMIC = "a tool's name may be any value: calls meet the index, the policy and the guard at run time"
REGEXP = "regular expressions are allowed: an engine that backtracks is stopped with its worker"
AWAITED = "a call that nobody awaits fails the script: to cancel it and say ok would hide half-done work"
QUIET = "throwOnError: false gives {success, data}, as the plugin's own types have it"
BIGINT = "a BigInt leaves as an integer, as everywhere here"
SIDECAR = "a reference is not joined by itself: the error names toString()"

# By row: the status, and the result where there is one; what is not here is as the plugin has it.
OURS: dict[int, tuple[str, Any, str]] = {
    1: ("ok", "planned", FUNCTIONS),
    5: ("syntax_error", None, STATUS),
    6: ("syntax_error", None, STATUS),
    13: ("ok", 2, "a property may have any name: the rule is about names of variables"),
    15: ("illegal_access", None, LOOPS),
    16: ("illegal_access", None, LOOPS),
    21: ("tool_error", None, STATUS),
    23: ("tool_error", None, STATUS),
    24: ("tool_error", None, STATUS),
    25: ("runtime_error", None, "an unknown name is the engine's own ReferenceError"),
    26: ("runtime_error", None, GLOBALS),
    27: ("tool_error", None, STATUS),
    30: ("ok", 0, GLOBALS),
    31: ("ok", "function", GLOBALS),
    32: ("ok", "north", GLOBALS),
    35: ("ok", 2, DYNAMIC),
    36: ("ok", 2, GLOBALS),
    37: ("ok", ["x", "y"], GLOBALS),
    38: ("ok", "12", REGEXP),
    39: ("runtime_error", None, AWAITED),
    40: ("ok", {"success": True, "data": {"rows": [{"no": 1}, {"no": 2}]}}, QUIET),
    46: ("ok", 9, BIGINT),
    50: ("runtime_error", None, SIDECAR),
    51: ("runtime_error", None, SIDECAR),
}


TIMES = 200  # as long as the plugin's is each time here: what waits lets it pass at once, the others have enough of it


def peer_tools(options: dict[str, Any], passing_time: Any) -> CodeCallToolset:
    async def slow(value: Any) -> dict[str, Any]:
        passing_time.skip(value["wait"] / 1000 * TIMES)
        await asyncio.sleep(0)  # in which a deadline would ring
        return {}

    def close(_value: Any) -> None:
        raise RuntimeError("ledger file missing in /var/books")

    takes = {"type": "object"}
    tools = {
        "orders:find": lambda value: {"rows": [{"no": at + 1} for at in range(value.get("max", 2))]},
        "ledger:close": close,
        "docs:large": lambda value: {"text": "y" * value["size"]},
        "jobs:slow": slow,
    }
    sidecar = {"enabled": bool(options.get("sidecar"))}
    vm = {key: value * TIMES for key, value in options.items() if key == "timeoutMs"}
    settings = {"execution_policy": {"timeout_includes_tools": options.get("timeout_includes_tools", False)}}
    given = [Tool(name, execute=run, input_schema=takes) for name, run in tools.items()]
    return create_code_call_tools(given, {"vm": vm, "sidecar": sidecar, "settings": settings})


@pytest.mark.parametrize("row", range(len(ROWS)), ids=IDS)
def test_an_answer_is_the_plugins_or_differs_for_a_reason(row: int, passing_time: Any):
    peer = ROWS[row]
    tools = peer_tools(peer.get("options", {}), passing_time)
    answer = tools.execute_sync({"script": peer["script"]}, script_context=CONTEXT)
    status, result, reason = OURS.get(row, (peer["status"], peer.get("result"), ""))
    assert answer["status"] == status, answer
    if status == "ok":
        assert answer["result"] == result
    assert bool(reason) == ((peer["status"], peer.get("result")) != (status, result))


def test_the_rows_are_those_that_were_answered():
    assert len(ROWS) == 52
    assert max(OURS) < len(ROWS)


def test_a_slow_tool_outlives_the_time_limit_only_while_the_clock_is_the_programs(passing_time: Any):
    slow = next(row for row in ROWS if "jobs:slow" in row["script"])
    tools = peer_tools({**slow["options"], "timeout_includes_tools": True}, passing_time)
    answer = tools.execute_sync({"script": slow["script"]})
    assert answer["status"] == "timeout"
    assert str(300 * TIMES) in answer["error"]["message"]
    assert slow["status"] == "ok"


def test_a_cycle_is_told_of(passing_time: Any):
    answer = peer_tools({}, passing_time).execute_sync({"script": "const ring = {}; ring.self = ring; return ring;"})
    assert len(answer["warnings"]) == 1
