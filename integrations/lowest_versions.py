"""Prints the lowest versions of the frameworks that the plugins allow, as constraints for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\d.]+)")
_OURS = "codemode-toolkit"


def lowest_versions(folder: Path) -> list[str]:
    """Return ``name==version`` for each framework that a plugin in this folder depends on."""
    bounds: set[str] = set()
    for file in sorted(folder.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).values()
        for requirement in [*project["dependencies"], *(one for extra in extras for one in extra)]:
            bound = _BOUND.match(requirement)
            if bound is None:
                raise ValueError(f"{file.parent.name}: {requirement!r} has no lower bound")
            if bound["name"] != _OURS:
                bounds.add(f"{bound['name']}=={bound['version']}")
    return sorted(bounds)


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest_versions(Path(__file__).parent)) + "\n")
