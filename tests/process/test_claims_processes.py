"""Claims of hosts that are killed, and of hosts that come at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import no_orphan_left, nothing_left, read_line

from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND

HOST = Path(__file__).parent / "hosts" / "claims.py"


def spawn(*arguments):
    command = [sys.executable, "-W", "error", str(HOST), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, line="go\n"):
    output, errors = process.communicate(line, timeout=60)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.mark.full
def test_a_host_that_is_killed_in_the_middle_leaves_a_question(tmp_path):
    file, log = tmp_path / "interrupt.json", tmp_path / "log"
    with nothing_left(), no_orphan_left():
        finish(spawn("pause", file))
        owner = spawn("resume", file, log, "hang")
        assert read_line(owner.stdout) == "begun\n"
        owner.kill()
        owner.communicate(timeout=60)
        answers = [finish(spawn("resume", file, log, "fast")) for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0]["kinds"] == [UNKNOWN_OUTCOME_KIND]
        assert finish(spawn("recover", file, log, "fast")) == {"value": "it was refunded"}
    assert log.read_text() == "refund\n"


@pytest.mark.full
def test_two_hosts_with_different_answers_run_one_of_them(tmp_path):
    file, log = tmp_path / "interrupt.json", tmp_path / "log"
    with nothing_left(), no_orphan_left():
        finish(spawn("pause", file))
        hosts = [spawn("resume", file, log, "quick"), spawn("resume", file, log, "quick", "deny")]
        for one in hosts:
            one.stdin.write("go\n")
            one.stdin.flush()
        results = [finish(one, "") for one in hosts]
    assert sorted("superseded" in result for result in results) == [False, True]
    approved = "value" in results[0]
    assert log.read_text() == ("refund\n" if approved else "") if log.exists() else not approved
