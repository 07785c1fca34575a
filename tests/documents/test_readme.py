"""Every Python block of the README runs as it stands. Model services are stand-ins on loopback."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import HttpServer
from sdk_standins import ScriptedModel, serve

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

# What a tool raises is logged, and some of these do: all else on stderr is a mistake.
_LOGGED_ELSEWHERE = "import logging; logging.getLogger('codemode').addHandler(logging.NullHandler())\n"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    server = HttpServer().start()
    model = ScriptedModel(["return await tools.stock({ product: 'bolt' })"])
    yield {**os.environ, **serve(server, model)}
    server.stop()


def test_the_readme_has_examples() -> None:
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-W", "error", "-"]
    done = subprocess.run(
        command, input=f"{_LOGGED_ELSEWHERE}{block}", text=True, capture_output=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
