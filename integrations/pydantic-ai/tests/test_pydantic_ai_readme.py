"""The README's programs and the example run as they stand."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from pydantic_ai.models import KnownModelName
from warm_python import WarmPython

HERE = Path(__file__).parents[1]
BLOCK = re.compile(r"^(?:<!-- model: ([^\n]*) -->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTED = [
    block for page in ("README.md", "GUIDE.md") for block in BLOCK.findall((HERE / page).read_text(encoding="utf-8"))
]
BLOCKS = [block for _, block in SCRIPTED]
# What stands for the model that a block names: it says one thing after the other, texts and lists of calls.
MODEL = """
import json
from pydantic_ai import models
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

steps = json.loads({said!r})

def respond(messages, info):
    step = steps.pop(0)
    return ModelResponse([TextPart(step)] if isinstance(step, str) else [ToolCallPart(*call) for call in step])

models.infer_model = lambda *_: FunctionModel(respond)
"""
NO_KEYS = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


Run = Callable[..., str]


@pytest.fixture
def run(pydantic_ai_python: WarmPython, tmp_path: Path) -> Run:
    def run(*arguments: str, said: str = "") -> str:
        done = pydantic_ai_python.run(*arguments, said=said, env=NO_KEYS, cwd=tmp_path)
        warnings = [line for line in done.stderr.splitlines() if "a signing key is an example" not in line]
        assert (done.returncode, warnings) == (0, [])
        return done.stdout

    return run


@pytest.mark.parametrize(("said", "block"), SCRIPTED, ids=range(len(SCRIPTED)))
def test_block_runs(run: Run, said: str, block: str) -> None:
    if "pydantic_evals" in block and find_spec("pydantic_evals") is None:
        pytest.skip("pydantic-evals fits the lowest version, with which its block is run")
    printed = run("-c", MODEL.format(said=said) + block if said else block)
    assert printed == "".join(f"{one}\n" for one in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE))


def test_the_models_that_it_names_are_real() -> None:
    named = {name for block in BLOCKS for name in re.findall(r'"(\w+:[\w.-]+)"', block)}
    assert named
    assert named <= set(get_args(KnownModelName.__value__))


def test_the_example_with_one_refund_edited_and_one_denied(run: Run) -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="e\n1000\nno\n")
    assert "The program wants: refund" in printed
    assert "Note: refunded 1000 cents of order 11; the desk refused to refund order 13" in printed


def test_the_example_with_everything_approved(run: Run) -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="a\na\n")
    assert '"refunded": 16700' in printed
