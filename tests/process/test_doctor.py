"""`codemode doctor` says what is so: compared with what the kernel says of a running worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite import full_only

from codemode import run_code_mode
from codemode.cli import main
from codemode.errors import CodeModeWorkerError
from codemode.workers.image import find_engine
from codemode.workers.supply import LAYERS, IsolationLayerState

COMMAND = [sys.executable, "-W", "error", "-m", "codemode", "doctor"]


def told(text: str) -> dict[str, str]:
    """The state of every layer, as the doctor prints it."""
    rows = re.findall(r"^  ([a-z-]+)\s+(?:required|further)\s+(.+)$", text, re.MULTILINE)
    return {name: next(state for state in IsolationLayerState if rest.startswith(state)) for name, rest in rows}


@pytest.fixture(scope="module", params=["fork", *full_only("exec")])
def report(request) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--start-method", request.param], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_healthy_machine_is_well(report):
    assert (report.returncode, report.stderr) == (0, "")
    assert report.stdout.endswith("All is well.\n")
    assert "FAILED" not in report.stdout
    assert len(re.findall(r"^  ok  ", report.stdout, re.MULTILINE)) >= 10


def test_it_names_engine_parser_and_start_method(report):
    assert f"engine        quickjs-ng {find_engine()[1]}\n" in report.stdout
    assert re.search(r"^parser        tree-sitter [\d.]+, tree-sitter-typescript [\d.]+$", report.stdout, re.MULTILINE)
    started = re.search(r"^start method  (fork|exec)", report.stdout, re.MULTILINE)
    assert started is not None
    assert started[1] == report.args[-1]


def test_every_layer_is_told_of(report):
    assert set(told(report.stdout)) == set(LAYERS)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the truth")
def test_the_layers_are_those_that_the_kernel_sees(report, within, make_pool):
    seen: list[dict[str, str]] = []
    pool = make_pool(start_method=report.args[-1])

    async def look() -> None:
        seen.extend(status(pid) for pid in descendants())

    within(run_code_mode("await tools.look()", [look], pool=pool))
    confined = [one for one in seen if one.get("Seccomp") == "2"]
    says = told(report.stdout)
    assert (says["seccomp"] == IsolationLayerState.IN_FORCE) == bool(confined)
    assert (says["no-new-privs"] == IsolationLayerState.IN_FORCE) == any(
        one.get("NoNewPrivs") == "1" for one in confined
    )
    uids = {one["Uid"].split()[0] for one in confined}
    if says["uid-drop"] == IsolationLayerState.IN_FORCE:
        assert "0" not in uids
        assert all(int(one["CapEff"], 16) == 0 for one in confined)


def descendants() -> list[str]:
    found: list[str] = []
    waiting = ["self"]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            children = task.read_text(encoding="ascii").split()
            found += children
            waiting += children
    return found


def status(pid: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_required_layers_that_are_missing_count_only_when_asked(monkeypatch, capsys):
    from codemode.workers import supply

    honest = supply.IsolationReport.from_hello

    def refused(value):
        return honest({**value, "seccomp": "refused by the environment: not here"})

    monkeypatch.setattr(supply.IsolationReport, "from_hello", refused)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert told(shown)["seccomp"] == IsolationLayerState.REFUSED
    assert "not here" in shown
    assert main(["doctor", "--required"]) == 1
    assert "Not well: required layers missing: seccomp" in capsys.readouterr().out


def test_a_machine_on_which_no_worker_starts_is_not_well(monkeypatch, capsys):
    from codemode.workers import image, supply

    def missing():
        raise CodeModeWorkerError("the JavaScript engine is not installed")

    monkeypatch.setattr(image, "find_engine", missing)
    monkeypatch.setattr("codemode.cli.doctor.find_engine", missing)
    assert supply.WorkerImage is image.WorkerImage
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "engine        the JavaScript engine is not installed" in shown
    assert "unknown: no worker started" in shown
    assert "11 of 11 checks failed" in shown
    assert "CodeModeWorkerError: the JavaScript engine is not installed" in shown


def test_a_self_test_that_fails_is_not_well(monkeypatch, capsys):
    from codemode.cli import doctor as self_test

    broken = (self_test.SelfTest("lies", "return 2", 3), self_test.SelfTest("loops", "return 1", CodeModeWorkerError))
    monkeypatch.setattr(self_test, "SELF_TESTS", broken)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"FAILED  lies\s+[\d.]+ ms  gave 2", shown)
    assert re.search(r"FAILED  loops\s+[\d.]+ ms  gave 1", shown)
