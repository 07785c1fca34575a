"""`codemode completion` prints scripts for the shells, with the commands of installed distributions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from codemode.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_every_command_and_their_options(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("quickstart", "describe", "--approve" if shell != "fish" else "approve", "approvals", "install"):
        assert word in script, word
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def test_a_description_is_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tools = tmp_path / "tools_here.py"
    tools.write_text("def stock(product: str) -> int:\n    'How many are in stock.'\n    return 7\n")
    assert main(["describe", "--tools", str(tools), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["tools"], "How many are in stock." in told["description"]) == ("codeMode", 1, True)
