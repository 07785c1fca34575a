"""Every Python block of the README and of docs/ runs as it stands. Model services are stand-ins on loopback."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import HttpServer
from postgres_cluster import cluster, new_database
from sdk_standins import ScriptedModel, serve

TREE = Path(__file__).parents[2]
PAGES = [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = {
    f"{page.relative_to(TREE)}-{number}": block
    for page in PAGES
    for number, block in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")))
}

_DSN = "CODE_MODE_POSTGRES"  # what a block that needs a Postgres reads from its environment

# What a tool raises is logged, and some of these do: all else on stderr is a mistake.
_LOGGED_ELSEWHERE = "import logging; logging.getLogger('codemode').addHandler(logging.NullHandler())\n"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    server = HttpServer().start()
    model = ScriptedModel(["return await tools.stock({ product: 'bolt' })"])
    yield {**os.environ, **serve(server, model)}
    server.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """How to reach an empty database; without Postgres on the machine the blocks that ask for it are skipped."""
    with cluster() as folder:
        yield new_database(folder, "pages")


def test_the_pages_have_examples() -> None:
    assert len(BLOCKS) >= 12


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_block_runs(block: str, environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if _DSN in block:
        environment[_DSN] = request.getfixturevalue("postgres")
    command = [sys.executable, "-W", "error", "-"]
    text = f"{_LOGGED_ELSEWHERE}{block}"
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, timeout=60, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
