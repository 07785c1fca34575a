"""Pauses that another process resumes: the key decides, and a shared guard lets only one of them run it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import no_orphan_left, nothing_left

HOST = Path(__file__).parent / "hosts" / "resumes.py"
SECONDS = 60


@pytest.fixture
def paused(tmp_path):
    file = tmp_path / "interrupt.json"
    host("pause", file, "old")
    return file


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.touch()
    return path


def spawn(*arguments):
    command = [sys.executable, "-W", "error", str(HOST), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    output, errors = process.communicate("go\n", timeout=SECONDS)
    assert not errors, errors
    return json.loads(output) if output else process.returncode


def host(*arguments):
    with nothing_left(), no_orphan_left():
        return finish(spawn(*arguments))


@pytest.mark.full
def test_another_process_with_the_same_key_goes_on(paused, log):
    result = host("resume", paused, log, "old")
    assert result["refunded"] == "order A1"
    assert log.read_text() == f"{result['by']}\n"


@pytest.mark.full
def test_another_process_with_another_key_refuses(paused, log):
    assert "key that is not known" in host("resume", paused, log, "new")["error"]
    assert log.read_text() == ""


@pytest.mark.full
def test_after_a_rotation_the_old_key_still_verifies(paused, log):
    assert host("resume", paused, log, "old", "new")["refunded"] == "order A1"
    assert "not known" in host("resume", paused, log, "newer", "new")["error"]


def test_a_double_click_in_two_processes_runs_once(paused, log):
    with nothing_left(), no_orphan_left():
        clicks = [spawn("resume", paused, log, "old", "--claims") for _ in range(2)]
        for click in clicks:
            click.stdin.write("go\n")
            click.stdin.flush()
        first, second = (finish(click) for click in clicks)
    assert first == second
    assert first["refunded"] == "order A1"
    assert log.read_text() == f"{first['by']}\n"
    assert host("resume", paused, log, "old", "--claims") == first


def test_a_crashed_owner_is_not_replaced(paused, log):
    assert host("crash", paused, log, "old", "--claims") == 3
    crashed = log.read_text()
    # Nobody renews its claim any more: let the time be later now instead of waiting for it.
    claims = sqlite3.connect(paused.with_suffix(".claims"))
    assert claims.execute("UPDATE resumes SET renewed_at_ms = 0").rowcount == 1
    claims.commit()
    claims.close()
    first, second = (host("resume", paused, log, "old", "--claims", "--hasty") for _ in range(2))
    assert "outcome is unknown" in first["error"]
    ((_, kind),) = first["recovery"]
    assert kind == "code-mode/unknown-outcome"
    assert first == second
    assert log.read_text() == crashed
