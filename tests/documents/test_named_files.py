"""What pages name in code as a file, a folder or a script of this repository is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from suite import each_row

TREE = Path(__file__).parents[2]
# Not the changelog and the decisions: what was so when they were written stays as it is.
PAGES = [
    *sorted(page for page in TREE.glob("*.md") if page.name != "CHANGELOG.md"),
    *sorted((TREE / "docs").glob("*.md")),
    TREE / "benchmarks" / "README.md",
    *sorted((TREE / "integrations").glob("*/*.md")),
]
# Those that somebody makes.
MADE = {
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    "Support/Claude",
    "tests/fuzz/findings/",
    "build/site",
    ".bench/peers",
    ".bench/node",
    "my_tools.py",
    "agent.py",
    "refunds.py",
    "deploy/.env",
}

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w.\-]+/)+[\w.\-]*|[\w\-]+\.(?:py|md|js)")
_MEDIA_TYPE = re.compile(r"(?:application|text)/[\w.+\-]+")
_MODULE = re.compile(r"(?:tests|benchmarks)(?:\.\w+)+")
_FOLDERS = ("src", "tests", "examples", "benchmarks")


def named(page: str) -> set[str]:
    """Return what a page's text names: paths, bare names of files, and modules that are run, as paths."""
    words = {word for code in _SPAN.findall(_FENCED.sub("", page)) for word in code.split()}
    modules = {word.replace(".", "/") + ".py" for word in words if _MODULE.fullmatch(word)}
    return {word for word in words if _PATH.fullmatch(word) and not _MEDIA_TYPE.fullmatch(word)} | modules


def is_there(name: str, folder: Path) -> bool:
    """Tell whether a file or folder is there, seen from the page, the root or the package; a bare name anywhere.

    A module that is run may be a package.
    """
    if name.startswith(".venv/"):  # the environment of these tests may be another one
        return (Path(sys.prefix) / name.removeprefix(".venv/")).exists()
    if any(
        (place / name).exists()
        for place in (folder, TREE, TREE / "src" / "codemode", *(TREE / "integrations").glob("*/src"))
    ):
        return True
    if (TREE / name.removesuffix(".py") / "__main__.py").exists():
        return True
    return "/" not in name and any(any((TREE / place).rglob(name)) for place in _FOLDERS)


@each_row("page", PAGES, ids=[str(page.relative_to(TREE)) for page in PAGES])
def test_every_file_that_a_page_names_is_there(page: Path):
    names = named(page.read_text(encoding="utf-8")) - MADE
    assert {name for name in names if not is_there(name, page.parent)} == set()


def test_the_check_sees_what_is_not_there():
    text = (
        "`tests/no.py`, `python -m tests.soak.chaos 3`, `make demo` in `a/b`\n```\n`x/y.py`\n```\n`one.py` `2.5` `a.b`"
    )
    assert named(text) == {"tests/no.py", "tests/soak/chaos.py", "a/b", "one.py"}
    assert is_there("tests/soak/chaos.py", TREE)
    assert is_there("test_lockdown.py", TREE)
    assert is_there("execution/execution.py", TREE / "docs")
    assert not is_there("tests/soak/no.py", TREE)
    assert not is_there("no_such_file.py", TREE)
