"""Containers that forbid a part of the lock-down: reported as it is, refused where it is required, and never a crash.

The host really runs under a filter that refuses the system calls, as a container's profile would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from leftovers import no_orphan_left, nothing_left
from suite import full_only

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"), reason="a filter of Linux's"
)

_HOST = Path(__file__).parent / "hosts" / "container.py"
_START_METHODS = ["fork", *full_only("exec")]


def run_in_container(start_method: str, *denied: str) -> dict[str, Any]:
    """What the host says of its workers."""
    request = json.dumps({"start_method": start_method, "denied": denied})
    with nothing_left(), no_orphan_left():
        outcome = subprocess.run(
            [sys.executable, str(_HOST), request], capture_output=True, text=True, timeout=60, check=False
        )
    assert outcome.returncode == 0, outcome.stderr
    assert not outcome.stderr
    return json.loads(outcome.stdout)


def refused(said: dict[str, Any]) -> set[str]:
    return {name for name, state in said["report"].items() if state == "refused by the environment"}


@pytest.fixture(scope="module")
def refused_anyway() -> set[str]:
    """What this machine refuses without any container."""
    return refused(run_in_container("fork"))


@pytest.mark.parametrize("start_method", _START_METHODS)
@pytest.mark.parametrize(
    ("denied", "layers"),
    [
        pytest.param(("unshare", "landlock_create_ruleset"), {"namespaces", "landlock"}, id="namespaces and landlock"),
        pytest.param(("close_range",), set(), id="close_range", marks=pytest.mark.full),
        pytest.param(("setresuid", "setgroups", "capset"), {"uid-drop"}, id="another user", marks=pytest.mark.full),
    ],
)
def test_what_is_forbidden_is_reported_and_the_rest_is_enough(
    refused_anyway: set[str], denied: tuple[str, ...], layers: set[str], start_method: str
) -> None:
    said = run_in_container(start_method, *denied)
    assert said["value"] == 42
    assert refused(said) == layers | refused_anyway
    assert said["required"] == 42


@pytest.mark.parametrize("start_method", _START_METHODS)
@pytest.mark.parametrize(
    ("denied", "layer"), [("install a filter", "seccomp"), *full_only(("prlimit64", "rlimits"))]
)  # fmt: skip
def test_what_is_required_and_forbidden_is_refused_by_name(denied: str, layer: str, start_method: str) -> None:
    said = run_in_container(start_method, denied)
    assert said["value"] == 42
    assert layer in refused(said)
    assert layer in said["required"]
