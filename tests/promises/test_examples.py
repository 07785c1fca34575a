"""The examples say what they need, and end quietly when nobody reads, or when what they need is not there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from public_servers import require_servers
from required import require_dbos_on_sqlite

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NO_KEYS = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
# Ray is in an environment of its own, and its example runs there: tests/soak/test_ray_short.py.
RUNNING = [path for path in EXAMPLES if path.stem != "ray_rollouts"]


def usually(*names: str) -> list[Any]:
    """Return the examples that run, all but these in the full suite alone."""
    return [pytest.param(path, id=path.stem, marks=() if path.stem in names else pytest.mark.full) for path in RUNNING]


everyone = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def run(*command: str, **settings: object) -> subprocess.CompletedProcess[str]:
    given = {"stdin": subprocess.DEVNULL, "capture_output": True, "env": NO_KEYS, **settings}
    return subprocess.run([sys.executable, *command], text=True, timeout=120, check=False, **given)  # type: ignore[call-overload]


def require_what_it_needs(example: Path) -> None:
    if example.stem == "gateway_triage":
        require_servers()
    if example.stem == "durable_refunds":
        require_dbos_on_sqlite()


@pytest.mark.parametrize("example", usually("demo"))
def test_an_example_runs_without_a_terminal(example: Path) -> None:
    require_what_it_needs(example)
    done = run("-W", "error", str(example))
    assert (done.returncode, done.stderr) == (0, "")


def test_every_example_prints_so_that_it_can_be_cut_off() -> None:
    ways = {example.stem: printing(example) for example in EXAMPLES}
    assert set(map(tuple, ways.values())) == {tuple(ways["demo"])}, ways


def printing(example: Path) -> list[str]:
    """Return the functions of an example that print, as they are written."""
    tree = ast.parse(example.read_text(encoding="utf-8"))
    made = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [ast.unparse(one) for one in made if any(map(is_print, ast.walk(one)))]


def is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


@pytest.mark.full
@pytest.mark.parametrize("example", usually("demo"))
def test_an_example_ends_quietly_when_nobody_reads_on(example: Path) -> None:
    require_what_it_needs(example)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(str(example), capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@everyone
def test_an_example_without_the_package_says_what_it_needs(example: Path) -> None:
    done = run("-I", "-S", str(example))
    assert done.returncode == 1
    assert re.search(r"pip install '?\.", done.stderr)
    assert "Traceback" not in done.stderr
    assert re.search(r"pip install '?\.", example.read_text(encoding="utf-8").split('"""')[1])
