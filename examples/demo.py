"""The main job end to end, on real data: the Python packages installed here. No network, no key.

Four tools answer questions about the packages, two of them from a SQLite file that this script builds first. A program
as a model would write it joins what they return.

Needs this package alone: ``pip install .`` in the root of the repository, or ``make demo``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

try:
    from pydantic import BaseModel, Field

    from codemode import create_code_mode_tool, tool
    from codemode.types import ConsoleEvent, Trace
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install .` in the root of the repository brings.")

PROGRAM = """\
// Which packages are needed by most others, how large are they, and are they typed?
type Row = { name: string; dependents: number };

const rows: Row[] = await tools.mostRequired({ limit: 8 });
const details = await Promise.all(rows.map(async (row) => {
  const [files, about] = await Promise.all([
    tools.packageFiles({ name: row.name }),
    tools["package-metadata"]({ name: row.name }),
  ]);
  return { ...row, ...files, version: about.version, summary: about.summary };
}));

const large = details.filter((one) => one.bytes > 100_000).sort((a, b) => b.bytes - a.bytes);
const licences = await tools.query({
  sql: `SELECT license, count(*) AS packages FROM packages GROUP BY license ORDER BY packages DESC LIMIT 3`,
});
console.log(`looked at ${details.length} packages, ${large.length} are large`);
return {
  largest: large.slice(0, 4).map(({ name, version, bytes, typed }) => ({ name, version, bytes, typed })),
  totalBytes: details.reduce((sum, one) => sum + one.bytes, 0),
  licences,
};
"""


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Metadata(BaseModel):
    """What a distribution says about itself."""

    version: str
    summary: str | None
    requires: list[str] = Field(description="Names of the packages that it needs")


class Files(BaseModel):
    """What a distribution put on the disk."""

    files: int
    bytes: int
    typed: bool = Field(description="Whether it ships type information")


def requirement_name(requirement: str) -> str:
    """Return the package name in a requirement such as ``httpx>=0.27; extra == 'fetch'``."""
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), len(requirement))
    return requirement[:end].lower().replace("_", "-")


def described(package: Distribution, field: str) -> str | None:
    """Return one field of a distribution's metadata, None when it has none."""
    return next(iter(package.metadata.get_all(field) or ()), None)


def build_database(path: Path) -> None:
    """Fill a SQLite file with the installed packages and what they require."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE packages (name TEXT PRIMARY KEY, version TEXT, license TEXT)")
        database.execute("CREATE TABLE requirements (package TEXT, requires TEXT)")
        for package in distributions():
            name = package.metadata["Name"].lower().replace("_", "-")
            licences = described(package, "License-Expression") or described(package, "License") or "not stated"
            values = (name, package.version, licences.splitlines()[0][:40])
            database.execute("INSERT OR IGNORE INTO packages VALUES (?, ?, ?)", values)
            for requirement in package.requires or []:
                database.execute("INSERT INTO requirements VALUES (?, ?)", (name, requirement_name(requirement)))
    database.close()


def make_tools(database_path: Path) -> list[object]:
    """Return the tools that the program gets: two read the installed packages, two the database."""

    def rows(sql: str, *values: object) -> list[dict[str, object]]:
        database = sqlite3.connect(f"file:{database_path}?mode=ro", uri=True)
        try:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(sql, values)]
        finally:
            database.close()

    @tool(name="package-metadata", annotations={"readOnlyHint": True})
    async def package_metadata(name: str) -> Metadata:
        """What an installed package says about itself."""
        package = distribution(name)
        requires = sorted({requirement_name(one) for one in package.requires or []})
        return Metadata(version=package.version, summary=described(package, "Summary"), requires=requires)

    @tool(name="packageFiles", annotations={"readOnlyHint": True})
    def package_files(name: str) -> Files:
        """How many files an installed package has, and how large they are together."""
        files = [Path(str(file.locate())) for file in distribution(name).files or []]
        size = sum(path.stat().st_size for path in files if path.is_file())
        return Files(files=len(files), bytes=size, typed=any(path.name == "py.typed" for path in files))

    @tool(name="mostRequired", annotations={"readOnlyHint": True})
    def most_required(limit: int = 5) -> list[dict[str, object]]:
        """The installed packages that most other installed packages require, as `{ name, dependents }`."""
        return rows(
            "SELECT requires AS name, count(DISTINCT package) AS dependents FROM requirements"
            " WHERE requires IN (SELECT name FROM packages) GROUP BY requires ORDER BY dependents DESC, name LIMIT ?",
            limit,
        )

    @tool(annotations={"readOnlyHint": True})
    def query(sql: str) -> list[dict[str, object]]:
        """Run a read-only SQL query over `packages(name, version, license)` and `requirements(package, requires)`."""
        return rows(sql)

    return [most_required, package_files, package_metadata, query]


def saved_against_direct_calls(trace: Trace, result_characters: int) -> str:
    """Say how many model turns and tokens of results direct calls would have taken, at four characters a token."""
    calls = sorted(trace.bridge_requests, key=lambda call: call.started_at_ms)
    rounds, ended = 0, 0.0
    for call in calls:  # calls that overlap are one message of the model
        rounds += call.started_at_ms >= ended
        ended = max(ended, call.completed_at_ms)
    direct = sum(call.output_bytes or 0 for call in calls) // 4
    return (
        f"Saved against direct calls: 2 model turns instead of {rounds + 1}, {result_characters // 4} tokens of results"
        f" read once instead of {direct} read in every turn after them."
    )


async def main() -> None:
    """Build the database, show what the model sees, run the program, show what it did."""
    traces: list[Trace] = []
    console: list[ConsoleEvent] = []
    with tempfile.TemporaryDirectory() as folder:
        database_path = Path(folder) / "packages.sqlite"
        build_database(database_path)
        lifecycle = {"on_trace": traces.append, "on_console": console.append}
        code_mode = create_code_mode_tool(make_tools(database_path), {"lifecycle": lifecycle})
        say("=== What the model sees ===\n")
        say(code_mode.description)
        say("\n=== The program that it writes ===\n")
        say(PROGRAM)
        result = await code_mode.execute({"js": PROGRAM})
    say("=== What the program did ===\n")
    say(traces[0].to_text())
    say("\n=== What it wrote to its console ===\n")
    say("\n".join(line.text for line in console))
    say("\n=== The one value that goes back to the model ===\n")
    say(json.dumps(result, indent=2))
    say(f"\n{saved_against_direct_calls(traces[0], len(json.dumps(result)))}")


if __name__ == "__main__":
    asyncio.run(main())
