"""How much a package brings along: what pip installs for it beyond what a framework has installed already."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def mib_beyond(package: str, framework: str) -> float:
    """Return the MiB of a package and all it requires, without those of a framework; both may name extras."""
    return sum(_size(distribution(name)) for name in _closure(package) - _closure(framework)) / 2**20


def _closure(package: str) -> set[str]:
    found, left = dict[str, set[str]](), [Requirement(package)]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name in found and requirement.extras <= found[name]:
            continue
        found[name] = found.get(name, set()) | requirement.extras
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:  # for another platform, or part of the standard library here
            del found[name]
            continue
        left += [one for one in map(Requirement, required) if _is_wanted(one, found[name])]
    return set(found)


def _is_wanted(requirement: Requirement, extras: set[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _size(found: Distribution) -> int:
    files = [Path(str(found.locate_file(one))) for one in found.files or []]
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        files += (Path(origin["url"].removeprefix("file://")) / "src").rglob("*")
    return sum(one.stat().st_size for one in files if one.is_file() and one.suffix != ".pyc")
