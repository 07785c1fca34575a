"""Runs every row of the comparison on both sides and writes `integrations/comparison/README.md`: `make comparison`.

``python integrations/comparison/run.py langchain`` runs those of one framework; with names of scripts it runs these,
and prints them alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from table import SIDES, TREE, committed, scripts, write

ENVIRONMENT = TREE / ".venv" / "comparison"
PEERS = ENVIRONMENT / "bin" / "python"
# It wants another version of pydantic-monty than the others.
AGENT_FRAMEWORK = ENVIRONMENT / "agent-framework" / "bin" / "python"
NODE_PACKAGES = ("@ai-sdk/code-mode", "run", "ai")
PATIENCE_SECONDS = 240
VERSIONS = {
    "pydantic-ai": ("pydantic-ai-slim", "pydantic-ai-harness", "pydantic-monty"),
    "langchain": ("langchain", "langgraph", "langchain-quickjs", "quickjs-rs", "deepagents"),
}
_VERSION = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"


def interpreter(side: str) -> str:
    """Return the Python that has a side: peers have environments of their own, and packages for Node none."""
    if side.startswith(("codemode", "@")):
        return sys.executable
    return str(AGENT_FRAMEWORK if side.startswith("agent-framework") else PEERS)


def answer(script: Path, side: str) -> str:
    """Return what a script prints last for a side."""
    command = [interpreter(side), str(script), side]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"its process did not end within {PATIENCE_SECONDS // 60} minutes"
    # Whoever has answered may end as it likes.
    if said := ended.stdout.strip().splitlines():
        return said[-1]
    return f"failed: {(ended.stderr.strip().splitlines() or [f'exit {ended.returncode}'])[-1][:200]}"


def table(framework: str, only: set[str]) -> dict[Path, list[str]]:
    """Run the rows of a framework: what costs are measured alone, the others two at a time.

    Whatever answers otherwise than the page says is asked once more, alone: a busy machine is no answer.
    """
    rows = [one for one in scripts(framework) if not only or one.stem in only]
    found: dict[tuple[Path, str], str] = {}

    def run(job: tuple[Path, str]) -> None:
        found[job] = answer(*job)
        print(f"{job[0].stem}: {job[1]}: {found[job]}", flush=True)

    jobs = [(script, side) for script in rows for side in SIDES[framework]]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, (job for job in jobs if not job[0].stem.startswith("cost"))))
    written = committed(framework)
    for script, side in jobs:
        before = written.get(script.stem, ())[SIDES[framework].index(side) :][:1]
        if script.stem.startswith("cost") or (found[script, side],) != before:
            run((script, side))
    return {script: [found[script, side] for side in SIDES[framework]] for script in rows}


def versions(framework: str) -> str:
    """Return the versions of what is compared, as pip and npm installed them for each side."""
    if framework == "core":
        return _versions_without_framework()
    ours, peer = SIDES[framework]
    names = VERSIONS[framework]
    own = "pydantic-ai-slim" if framework == "pydantic-ai" else "langchain"
    said = subprocess.run(
        [interpreter(peer), "-c", _VERSION, *names], capture_output=True, text=True, check=True
    ).stdout.split()
    under = subprocess.run(
        [interpreter(ours), "-c", _VERSION, ours, own], capture_output=True, text=True, check=True
    ).stdout.split()
    peers = ", ".join(f"{name} {version}" for name, version in zip(names, said, strict=True))
    return f"{ours} {under[0]} with {own} {under[1]}; {peers}"


def _versions_without_framework() -> str:
    found = [_version_of("codemode-toolkit", "codemode-toolkit")]
    for name in NODE_PACKAGES:
        package = json.loads(
            (ENVIRONMENT / "node" / "node_modules" / name / "package.json").read_text(encoding="utf-8")
        )
        found.append(f"{name} {package['version']}")
    found += [_version_of("fastmcp", "fastmcp"), _version_of("agent-framework-monty", "agent-framework-monty")]
    return ", ".join(found)


def _version_of(side: str, package: str) -> str:
    command = [interpreter(side), "-c", _VERSION, package]
    return f"{package} {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}"


def main() -> None:
    """Run what is asked for."""
    asked = set(sys.argv[1:])
    only = asked - SIDES.keys()
    for framework in [one for one in SIDES if one in asked] or SIDES:
        answers = table(framework, only)
        if not only:
            python = ".".join(map(str, sys.version_info[:3]))
            told = f"Run on {date.today().isoformat()}, Python {python}, Linux. {versions(framework)}."
            write(framework, told, answers)


if __name__ == "__main__":
    main()
