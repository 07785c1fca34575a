"""An agent with programs inside a workflow function of Temporal: what to do instead, before anything has begun."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from required import missing
from warm_python import WarmPython

SCRIPT = Path(__file__).parent / "temporal_agent.py"


def test_a_workflow_function_fails_with_what_to_do_whenever_it_is_replayed(pydantic_ai_python: WarmPython) -> None:
    if find_spec("temporalio") is None:
        missing("temporal", "temporalio is not installed")
    done = pydantic_ai_python.run(str(SCRIPT))
    assert done.returncode == 0, done.stderr[-2000:]
    # The SDK writes its own log to the same place.
    (said,) = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("said ")]
    told = json.loads(said)
    assert set(told["told"]) == {"capability", "durable", "pair", "toolset", "tool"}
    for name, way in told["told"].items():
        assert "call agent.run in an activity" in way["alone"], name
        assert "UserError" in way["alone"], name
        # A history that ends in a failure and has no other step is what each replay comes to: no activity, no timer.
        assert way["with the plugin"] is None, name
        assert "Nondeterminism error: Fail workflow" in way["as if it had ended well"], name
    assert told["asked"] == []
    assert told["has_begun"] is False
