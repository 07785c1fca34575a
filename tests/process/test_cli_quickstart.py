"""`codemode quickstart` writes an agent that runs as it is, and `codemode run -e` takes the program itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from suite import full_only

from codemode.cli import main, quickstart

PACKAGES = {
    "pydantic-ai": "codemode_pydantic_ai",
    "langchain": "codemode_langchain",
    "openai-agents": "codemode_openai_agents",
}


@pytest.mark.parametrize("framework", ["plain", *full_only(*PACKAGES)])
def test_the_written_agent_asks_a_person_and_refunds(framework: str, tmp_path: Path):
    if framework in PACKAGES and find_spec(PACKAGES[framework]) is None:
        pytest.skip(f"{PACKAGES[framework]} is not installed")
    agent = tmp_path / "agent.py"
    assert main(["quickstart", framework, str(agent)]) == 0
    ran = subprocess.run(
        [sys.executable, str(agent)], input="y\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Approve refund(" in ran.stdout
    assert "refunded 900 cents for A-1" in ran.stdout
    assert max(map(len, agent.read_text().splitlines())) <= 120


def test_a_file_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    agent = tmp_path / "agent.py"
    agent.write_text("mine")
    assert main(["quickstart", "plain", str(agent)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert agent.read_text() == "mine"
    assert main(["quickstart", "plain", str(agent), "--force"]) == 0
    assert agent.read_text() != "mine"


@pytest.mark.parametrize(
    ("framework", "distribution"), [("pydantic-ai", "pydantic-ai"), ("langchain", "langchain[agents]")]
)
def test_a_missing_plugin_is_named(
    framework: str,
    distribution: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(quickstart, "find_spec", lambda _: None)
    assert main(["quickstart", framework, str(tmp_path / "agent.py")]) == 0
    assert f"pip install 'codemode-{distribution}'" in capsys.readouterr().out


def test_a_program_is_given_as_text(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "-e", "return 1 + 1"]) == 0
    assert capsys.readouterr().out == "2\n"
    for wrong in (["run"], ["run", "program.js", "-e", "return 1"]):
        with pytest.raises(SystemExit) as refused:
            main(wrong)
        assert refused.value.code == 2
        assert "a file or -e TEXT" in capsys.readouterr().err
