"""The tables of `integrations/comparison/README.md`: one row for each script, made from what the scripts print."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

TREE = Path(__file__).parents[2]
PAGE = TREE / "integrations" / "comparison" / "README.md"
# Per framework: ours, then the peers that do the same in it. "core" is without a framework's agent.
SIDES = {
    "pydantic-ai": ("codemode-pydantic-ai", "pydantic-ai-harness"),
    "langchain": ("codemode-langchain", "langchain-quickjs"),
    "core": ("codemode-toolkit", "@ai-sdk/code-mode", "fastmcp", "agent-framework-monty"),
}
# What a script's name begins with, in the order of the table.
PARTS = {
    "program": "Programs and results",
    "content": "Images, audio and files",
    "error": "Errors of tools",
    "approval": "A person in the loop",
    "killed": "A process that dies",
    "safety": "Limits and safety",
    "watch": "Watching",
    "agent": "Agents and their tools",
    "deep": "In a deep agent (`create_deep_agent`)",
    "cost": "Cost",
}
_ROW = re.compile(r"^\| \[.*\]\((\S+)\) \| (.*) \|$", re.MULTILINE)


def scripts(framework: str) -> list[Path]:
    """Return the scripts of a framework in the order of its table."""
    own = TREE / "integrations" / framework / "tests" / "comparison"
    folder = Path(__file__).parent if framework == "core" else own
    found = [one for one in folder.glob("*.py") if one.stem.split("_")[0] in PARTS]
    return sorted(found, key=lambda one: (list(PARTS).index(one.stem.split("_")[0]), one.stem))


def question(script: Path) -> str:
    """Return what a script asks: the first line of its docstring."""
    return (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def load(script: Path) -> ModuleType:
    """Import a script under a name of its own, for two frameworks have scripts of the same name."""
    of = "core" if script.parent == Path(__file__).parent else script.parents[2].name.replace("-", "_")
    name = f"comparison_{of}_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(framework: str) -> dict[str, tuple[str, ...]]:
    """Return the answers of the page by the name of the script: ours, and the peers'."""
    part = _part(PAGE.read_text(encoding="utf-8"), framework)
    return {Path(link).stem: tuple(cells.split(" | ")) for link, cells in _ROW.findall(part)}


def write(framework: str, told: str, answers: Mapping[Path, Sequence[str]]) -> None:
    """Put a table in the place of the one that is there, below a line that says when it was made and with what."""
    sides = SIDES[framework]
    lines = [told, "", f"| | {' | '.join(sides)} |", f"| --- |{' --- |' * len(sides)}"]
    before = ""
    for script, cells in answers.items():
        part = script.stem.split("_")[0]
        if part != before:
            lines.append(f"| **{PARTS[part]}** |{' |' * len(sides)}")
            before = part
        link = os.path.relpath(script, PAGE.parent)
        lines.append(f"| [{question(script)}]({link}) | {' | '.join(cells)} |")
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {framework} -->\n")
    _, end, tail = rest.partition(f"<!-- end of {framework} -->")
    PAGE.write_text("".join([head, begin, "\n".join([*lines, ""]), end, tail]), encoding="utf-8")


def _part(page: str, framework: str) -> str:
    return page.partition(f"<!-- {framework} -->")[2].partition(f"<!-- end of {framework} -->")[0]
