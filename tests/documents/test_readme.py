"""Every Python block of the README and of docs/ runs as it stands. Model services are stand-ins on loopback."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpServer
from postgres_cluster import cluster, new_database
from required import require_dbos_on_sqlite
from sdk_standins import ScriptedModel, serve
from suite import full_only
from warm_python import WarmPython

TREE = Path(__file__).parents[2]
PAGES = [
    TREE / "README.md",
    *sorted((TREE / "docs").rglob("*.md")),
    *(
        TREE / "integrations" / name
        for name in ("PLUGIN.md", "gateway/README.md", "gateway/GUIDE.md", "console/GUIDE.md")
    ),
]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = {page: _BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES}

_DSN = "CODE_MODE_POSTGRES"  # what a block that needs a Postgres reads from its environment
NEEDS_MORE = (_DSN, "dbos", "temporalio")  # a server of its own or a large framework: in the full suite


def scripts() -> Iterator[Any]:
    """Yield parameters of a test: blocks of a page of docs/ in one process; of the README, and of all pages in the full
    suite, each in a process of its own.
    """
    for page, blocks in BLOCKS.items():
        name, is_readme = str(page.relative_to(TREE)), page.name == "README.md"
        quick = [block for block in blocks if not any(word in block for word in NEEDS_MORE)]
        if quick and not is_readme:
            yield pytest.param("".join(map(in_a_module_of_its_own, quick)), id=name)
        for number, block in enumerate(blocks):
            yield pytest.param(block, id=f"{name}-{number}", marks=() if is_readme else pytest.mark.full)


def in_a_module_of_its_own(block: str) -> str:
    """Return a statement that runs a block as a script does, with nothing of the others."""
    return f"exec(compile({block!r}, 'a block', 'exec'), {{'__name__': '__main__'}})\n"


# What a tool raises is logged, and some of these do: all else on stderr is a mistake.
_UNHEARD = "import logging; logging.getLogger('codemode').addHandler(logging.NullHandler())"


def imports() -> list[str]:
    """Every statement at the left margin of a block that imports something of this project."""
    trees = [ast.parse(block) for blocks in BLOCKS.values() for block in blocks]
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
    assert sum(map(len, BLOCKS.values())) >= 12


@pytest.mark.parametrize(
    ("block", "status", "told"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import warnings; warnings.warn('beware')", 1, "beware"),
        ("async def nobody_waits(): ...\nnobody_waits()", 0, "was never awaited"),
        *full_only(
            ("raise SystemExit(3)", 3, ""),
            ("import atexit; atexit.register(lambda: 1 / 0)", 0, "ZeroDivisionError"),
            (
                "import atexit, sys\ndef last(): print(one, file=sys.stderr)\natexit.register(last); one = 'still'",
                0,
                "still",
            ),
        ),
    ],
)
def test_what_goes_wrong_in_a_block_is_seen(block: str, status: int, told: str, python: WarmPython) -> None:
    ended = python.run("-c", block)
    assert ended.returncode == status
    assert told in ended.stderr


@pytest.mark.parametrize("script", [*scripts()])
def test_blocks_run(
    script: str,
    python: WarmPython,
    environment: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if "DBOS" in script:
        require_dbos_on_sqlite()
    if _DSN in script:
        environment[_DSN] = request.getfixturevalue("postgres")
    ended = python.run("-c", script, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
