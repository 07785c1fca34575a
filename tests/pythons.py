"""Runs `make test` on each Python from 3.11 to 3.14 that is there, in an environment each, and says which were not.

A Python is there when it runs and can make environments: the stand-ins of pyenv on the path run only where a version is
chosen, so the folders of its versions are looked at too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_PROBE = "import ensurepip, sqlite3, ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find(version: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the first Python of this version, as a path, that is whole; None where there is none."""
    return next((one for one in _places(version, environment) if _said_by(one, environment) == version), None)


def _places(version: str, environment: Mapping[str, str]) -> Iterable[str]:
    folders = environment.get("PATH", "").split(os.pathsep)
    yield from (found for one in folders if one and (found := shutil.which(f"python{version}", path=one)))
    root = environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/"), ".pyenv")
    yield from map(str, sorted(Path(root, "versions").glob(f"{version}.*/bin/python{version}"), reverse=True))


def _said_by(python: str, environment: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main(make: list[str]) -> int:
    """Run ``make`` for each Python in turn and return 1 where one of them failed, or none was there."""
    found = {version: find(version) for version in VERSIONS}
    told: list[str] = []
    is_well = any(found.values())
    for version, python in found.items():
        if python is None:
            told.append(f"Python {version}: not there")
            continue
        print(f"Python {version}: {python}", flush=True)
        passed = subprocess.run([*make, f"PYTHON={python}", f"VENV=.venv/python{version}"], check=False).returncode == 0
        is_well = is_well and passed
        told.append(f"Python {version}: {'passed' if passed else 'FAILED'} ({python})")
    print(*told, sep="\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
