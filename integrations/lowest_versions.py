"""Prints the lowest versions of the frameworks that the plugins allow, as constraints for pip.

With ``--to-test`` it prints the folders of the plugins for which those are not what is installed here: the tests of
the others would run with the same versions once more.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\d.]+)")
_OURS = "codemode-toolkit"
# What their frameworks need does not fit beside the lowest versions of the others; their lowest is the newest, so far.
_ALONE = ("gateway", "openai-agents")


def lowest_versions(folder: Path) -> list[str]:
    """Return ``name==version`` for each framework that a plugin in this folder depends on."""
    return sorted({f"{name}=={bound}" for file in _plugins(folder) for name, bound in _bounds(file).items()})


def to_test(folder: Path) -> list[str]:
    """Return the folders of the plugins that allow a lower version of a framework than the one installed here."""
    return [
        str(file.parent)
        for file in _plugins(folder)
        if any(_numbers(version(name)) != _numbers(bound) for name, bound in _bounds(file).items())
    ]


def _plugins(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*/pyproject.toml") if file.parent.name not in _ALONE)


def _bounds(file: Path) -> dict[str, str]:
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    found: dict[str, str] = {}
    for requirement in [*project["dependencies"], *(one for extra in extras for one in extra)]:
        bound = _BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"{file.parent.name}: {requirement!r} has no lower bound")
        if bound["name"] != _OURS:
            found[bound["name"]] = bound["version"]
    return found


def _numbers(said: str) -> list[str]:
    """Return the parts of a version without zeros at its end: 2.68 is 2.68.0."""
    return re.sub(r"(\.0)+$", "", said).split(".")


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.stdout.write("\n".join(to_test(here) if "--to-test" in sys.argv else lowest_versions(here)) + "\n")
