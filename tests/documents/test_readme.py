"""Every Python block of the README and of docs/ runs as it stands. Model services are stand-ins on loopback."""

import ast
import json
import os
import re
import select
import signal
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

PROCESS = Path(__file__).with_name("block_process.py")
PATIENCE_SECONDS = 120


def imports() -> list[str]:
    """Every statement at the left margin of a block that imports something of this project."""
    trees = [ast.parse(block) for block in BLOCKS.values()]
    found = [ast.unparse(node) for tree in trees for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [statement for statement in dict.fromkeys(found) if statement.startswith("from codemode")]


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    """What runs each block in a fork of one process that has imported what they all import."""
    command = [sys.executable, "-W", "error", str(PROCESS), json.dumps(imports())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        yield started
        os.killpg(started.pid, signal.SIGKILL)


def exit_status(process: subprocess.Popen[str], asked: dict[str, object]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
    assert ready, "the block does not end"
    return int(process.stdout.readline())


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


@pytest.mark.parametrize(
    ("block", "status", "told"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import warnings; warnings.warn('beware')", 1, "beware"),
        ("async def nobody_waits(): ...\nnobody_waits()", 0, "was never awaited"),
        ("import atexit; atexit.register(lambda: 1 / 0)", 0, "ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_in_a_block_is_seen(
    block: str, status: int, told: str, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    stderr = tmp_path / "stderr"
    asked = {"text": block, "folder": str(tmp_path), "environment": {**os.environ}, "stderr": str(stderr)}
    assert exit_status(process, asked) == status
    assert told in stderr.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_block_runs(
    block: str,
    process: subprocess.Popen[str],
    environment: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if _DSN in block:
        environment[_DSN] = request.getfixturevalue("postgres")
    folder, stderr = tmp_path / "folder", tmp_path / "stderr"
    folder.mkdir()
    asked = {"text": block, "folder": str(folder), "environment": environment, "stderr": str(stderr)}
    status = exit_status(process, asked)
    assert (status, stderr.read_text(encoding="utf-8")) == (0, "")
