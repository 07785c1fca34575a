"""The pipeline through pauses: in another process, and for any values that a program, a hook and a person may give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pausing import OK, PAUSING, go_on
from waiting import within

from codemode import Interrupt, Tool, run_code_mode
from codemode.types import PIPELINE_NULL, PipelineCall

HOST = Path(__file__).parent / "hosts" / "pipeline_resumes.py"
SECONDS = 60


def host(*arguments: Any) -> str:
    command = [sys.executable, "-W", "error", str(HOST), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def paused(tmp_path: Path) -> Path:
    file = tmp_path / "interrupt.json"
    host("pause", file)
    return file


def test_another_process_runs_what_was_shown_here(paused: Path):
    interrupt = json.loads(paused.read_text())
    assert interrupt["input"] == {"token": "*** 2"}
    came = json.loads(host("resume", paused, json.dumps(OK)))
    assert came == {
        "result": [{"token": "*** 1"}, {"token": "*** 2"}],
        "asked": [],
        "ran": [{"token": "*** 2"}],
        "shown": [["look", {"token": "*** 1"}], ["refund", {"token": "*** 2"}]],
    }


@pytest.mark.full
def test_another_process_judges_what_a_person_has_edited(paused: Path):
    came = json.loads(host("resume", paused, json.dumps({**OK, "input": {"token": "secret 3"}})))
    assert "edited input of tool 'refund' is refused" in came["result"]["error"]
    assert (came["asked"], came["ran"]) == ([{"token": "secret 3"}], [])


@pytest.mark.full
def test_another_process_runs_an_edit_that_needs_no_scrubbing(paused: Path):
    came = json.loads(host("resume", paused, json.dumps({**OK, "input": {"token": "mine"}})))
    assert came["result"][1] == {"token": "mine"}
    assert came["ran"] == [{"token": "mine"}]


# --- any values

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
replaced = st.none() | st.just(PIPELINE_NULL) | json_values


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def chosen(given_one: Any, otherwise: Any) -> Any:
    return otherwise if given_one is None else None if given_one is PIPELINE_NULL else plain(given_one)


def program(values: list[Any]) -> str:
    # Texts travel as JSON, so that no literal means anything else in JavaScript.
    texts = json.dumps([json.dumps(value, ensure_ascii=True) for value in values])
    return f"const got = []; for (const text of {texts}) got.push(await tools.take([JSON.parse(text)])); return got"


GENERATED = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@GENERATED
@given(calls=st.lists(st.tuples(json_values, replaced, replaced), min_size=1, max_size=4), pauses=st.booleans())
def test_any_values_are_replaced_shown_and_run_alike(calls: list[tuple[Any, Any, Any]], pauses: bool):
    asked: list[Any] = []
    ran: list[Any] = []
    shown: list[Any] = []

    def before(call: PipelineCall) -> Any:
        asked.append(call.input)
        return calls[int(call.tool_call_id.rpartition("-")[2]) - 1][1]

    async def after(call: PipelineCall, _output: Any) -> Any:
        return calls[int(call.tool_call_id.rpartition("-")[2]) - 1][2]

    tools = [Tool("take", execute=lambda value: ran.append(plain(value)) or value, needs_approval=pauses)]
    hear = {"on_nested_tool_result": lambda event: shown.append((event.status, event.replayed, event.input))}
    options: dict[str, Any] = {**PAUSING, "pipeline": {"before": before, "after": after}, "lifecycle": hear}
    outcome = within(run_code_mode(program([value for value, _, _ in calls]), tools, options=options))
    inputs = [chosen(hook, [value]) for value, hook, _ in calls]
    for number in range(len(calls) if pauses else 0):
        assert isinstance(outcome, Interrupt)
        assert same(outcome.input, inputs[number])
        outcome = go_on(outcome, tools, OK, options=options)
    assert len(asked) == len(calls)
    assert all(same(*pair) for pair in zip(asked, [[value] for value, _, _ in calls], strict=True))
    assert all(same(*pair) for pair in zip(ran, inputs, strict=True))
    outputs = [chosen(hook, one) for (_, _, hook), one in zip(calls, inputs, strict=True)]
    assert same(outcome, outputs)
    done = [one for status, replayed, one in shown if status == "fulfilled" and not replayed]
    assert all(same(*pair) for pair in zip(done, inputs, strict=True))


def same(one: Any, other: Any) -> bool:
    """Compare as JavaScript does, whose numbers are doubles and which has no half characters on the way out."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other
