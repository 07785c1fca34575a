"""What the README and the example show works."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from required import missing
from warm_python import WarmPython

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"((?:<!-- the model[^\n]*:\n.*?-->\n)*)```python\n(.*?)```", re.DOTALL)
_SAID = re.compile(r"<!-- the model(?:, asked to ([^\n]*))?:\n(.*?)-->\n", re.DOTALL)
_RESOLVES = "langchain.chat_models.base._init_chat_model_helper"


def blocks() -> list[tuple[str, str]]:
    """Return each block of the README and the guide, with what its model says."""
    return [block for page in ("README.md", "GUIDE.md") for block in _BLOCK.findall((ROOT / page).read_text())]


class Reader(BaseChatModel):
    """Stands for the models that a block names: writes what the comment above it says, and then the end.

    That is ``codeMode`` and a program, or calls line by line: a name and an input, in which "$runId" is that of the
    newest result.
    """

    said: list[tuple[str, str]]

    @property
    def _llm_type(self) -> str:
        return "reader"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        asked = max(index for index, one in enumerate(messages) if one.type == "human")
        text = next(text for what, text in [*self.said[1:], self.said[0]] if what in messages[asked].text)
        steps = [text.partition("\n")[2]] if text.startswith("codeMode\n") else text.splitlines()
        done = sum(one.type == "ai" for one in messages[asked:])
        message = AIMessage("Done.")
        if done < len(steps):
            name, _, given = ("codeMode", "", steps[0]) if text.startswith("codeMode\n") else steps[done].partition(" ")
            if '"$runId"' in given:
                given = given.replace("$runId", json.loads(messages[-1].content)["runId"])
            args = {"js": given} if name == "codeMode" else json.loads(given)
            call = {"name": name, "args": args, "id": f"call_{done}", "type": "tool_call"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.filterwarnings("ignore:`langchain.mcp` is in beta")
@pytest.mark.parametrize("number", range(12))
def test_readme(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said, code = blocks()[number]
    if "deepagents" in code and find_spec("deepagents") is None:
        missing("deepagents", "deepagents is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", "a key that ends with the block")
    monkeypatch.setattr(_RESOLVES, lambda *_args, **_settings: Reader(said=_SAID.findall(said)))
    exec(compile(code, f"README block {number}", "exec", dont_inherit=True), {"__name__": "readme"})


def test_every_block_is_run_and_each_agent_has_a_real_models_name():
    assert len(blocks()) == 12
    for said, code in blocks():
        named = re.findall(r'create_(?:deep_)?agent\(\s*"openai:gpt-5-mini"', code)
        assert bool(named) == bool(said)


EXAMPLE = str(ROOT / "examples" / "approvals.py")
Terminal = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def terminal(langchain_python: WarmPython, tmp_path: Path) -> Terminal:
    """Run the example over one file, with these answers."""
    return lambda answers: langchain_python.run(EXAMPLE, str(tmp_path / "approvals.db"), said=answers)


@pytest.mark.full
def test_the_example_in_two_sittings(terminal: Terminal):
    first = terminal("y\n")  # the input ends at the second question
    assert first.stdout.count("(looking") == 1
    assert "(refunding A-1: 12.50)" in first.stdout
    second = terminal("no\n100\n")
    assert second.returncode == 0, second.stderr
    assert "(looking" not in second.stdout
    assert "(refunding A-1" not in second.stdout
    assert '"A-3: refunded 1.00"' in second.stdout
    assert "A-2: approval of tool 'refund' was denied" in second.stdout


def install_lines() -> list[str]:
    """What the README and the example say to install, as they say it."""
    texts = [(ROOT / "README.md").read_text(), (ROOT / "examples" / "approvals.py").read_text()]
    return [line for text in texts for line in re.findall(r"^(?:\$| {4}) ?(pip install [^#\n]*)", text, re.MULTILINE)]


@pytest.mark.full
def test_what_is_to_be_installed_can_be_installed_from_a_clone():
    words, others = (shlex.split(line) for line in install_lines())
    assert words == others
    assert words[:2] == ["pip", "install"]
    # Nothing that is installed here may help; and nothing is installed.
    command = [sys.executable, "-m", *words, "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(command, cwd=ROOT.parent.parent, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode and "hatchling" in done.stderr:
        missing("index", "pip reaches no package index")
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_example_says_what_it_needs(tmp_path: Path):
    bare = [sys.executable, "-I", "-S", EXAMPLE]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "pip install . './integrations/langchain[agents]'" in done.stderr
    assert "Traceback" not in done.stderr
    # As if the checkpoints of SQLite were not installed.
    hidden = (
        "import runpy, sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name.endswith('.sqlite') else find(name, *rest);"
        "sys.modules['langgraph.checkpoint.sqlite'] = None; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden, EXAMPLE],
        input="y\nno\n100\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "what you leave undecided is forgotten" in done.stdout
    assert '"A-3: refunded 1.00"' in done.stdout
    # Only the guard's file: what was decided once is not decided again.
    assert [one.name for one in tmp_path.iterdir()] == ["approvals.db.resumed"]


@pytest.mark.full
def test_the_example_ends_without_a_terminal(terminal: Terminal):
    done = terminal("")
    assert done.returncode == 1
    assert "A-1? [y]es" in done.stdout
    assert "Stopped at a question" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_example_ends_quietly_when_nobody_reads_any_more(terminal: Terminal, tmp_path: Path, unbuffered: str):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, EXAMPLE, str(tmp_path / "approvals.db")]
    done = subprocess.run(
        command,
        input="y\ny\ny\n",
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert done.returncode == 1
    assert "Stopped at a question" in done.stderr
    again = terminal("no\nno\nno\n")
    assert "(refunding" not in again.stdout
    assert again.stdout.count("was denied") == 3
