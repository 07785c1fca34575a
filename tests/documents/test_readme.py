"""Every Python block of the README and of docs/ runs as it stands. Model services are stand-ins on loopback."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import HttpServer
from postgres_cluster import cluster, new_database
from required import require_dbos_on_sqlite
from sdk_standins import ScriptedModel, serve
from warm_python import WarmPython

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
_UNHEARD = "import logging; logging.getLogger('codemode').addHandler(logging.NullHandler())"


def imports() -> list[str]:
    """Every statement at the left margin of a block that imports something of this project."""
    trees = [ast.parse(block) for block in BLOCKS.values()]
    found = [ast.unparse(node) for tree in trees for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [statement for statement in dict.fromkeys(found) if statement.startswith("from codemode")]


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    """What runs each block in a fork of one process that has imported what they all import."""
    with WarmPython(*imports(), _UNHEARD) as started:
        yield started


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
        (
            "import atexit\ndef last(): print(one, file=sys.stderr)\natexit.register(last)\nimport sys; one = 'still'",
            0,
            "still",
        ),
    ],
)
def test_what_goes_wrong_in_a_block_is_seen(block: str, status: int, told: str, python: WarmPython) -> None:
    ended = python.run("-c", block)
    assert ended.returncode == status
    assert told in ended.stderr


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_block_runs(
    block: str,
    python: WarmPython,
    environment: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if "DBOS" in block:
        require_dbos_on_sqlite()
    if _DSN in block:
        environment[_DSN] = request.getfixturevalue("postgres")
    ended = python.run("-c", block, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
