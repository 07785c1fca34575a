"""`python -m benchmarks.cost` prints the tables from `measured.json`; with ``measure`` it measures this machine first.

``check`` measures, and compares the model with hosts under load: runs a second and CPU shall be within 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from contextlib import ExitStack

from ..stores import own_cluster
from ..table import machine
from . import report
from .check import GOAL, check_table, checked, worst
from .clocks import server_of
from .figures import KEPT, Figures
from .measure import Pace, calibrated, memory, middle
from .stored import measured, operation_of, postgres_bytes, sqlite_bytes, statements_of

_PROCESSES = (1, 2, 4)


def figures_of(rounds: int, seconds: float, count: int) -> Figures:
    """Measure this machine: runs, memory, pauses, Postgres. Raises `OSError` where there is no Postgres."""
    with ExitStack() as stack:
        dsn = own_cluster(stack)
        if dsn is None:
            raise OSError("without Postgres nothing can be said of pauses and journals")
        server = server_of(dsn)
        pause_bytes = {  # before anything has left free pages in the database
            "SQLite": asyncio.run(sqlite_bytes(count)),
            "Postgres": asyncio.run(postgres_bytes(dsn, 2 * count)),
        }
        statements = asyncio.run(statements_of(dsn))
        alone = measured(dsn, server, 1, count, 1, "alone")
        operations = {name: operation_of(name, one, statements[name]) for name, one in alone.items()}
        several = {each: measured(dsn, server, each, count, 4, f"of{each} ") for each in _PROCESSES}
        return Figures(
            machine=f"{machine()}, {time.strftime('%Y-%m-%d', time.gmtime())}",
            load=f"{os.getloadavg()[0]:.0f}",
            costs=middle([calibrated(seconds, Pace(at), at, dsn, operations).costs for at in range(rounds)]),
            memory=memory(),
            operations=operations,
            rates={
                name: {f"{each} process{'es' * (each > 1)}": found[name].rate for each, found in several.items()}
                for name in alone
            },
            pause_bytes=pause_bytes,
        )


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("tables", "measure", "check"), default="tables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--count", type=int, default=300, help="how many pauses and journals each process has")
    given = parser.parse_args()
    if given.what == "tables":
        figures = Figures.read()
        print(f"{figures.machine}, load {figures.load}\n\n{report.tables(figures)}")
    elif given.what == "measure":
        figures = figures_of(given.rounds, given.seconds, given.count)
        figures.write()
        print(f"{KEPT} is written\n\n{report.tables(figures)}")
    else:
        cases, calibrations = checked(given.rounds, given.seconds)
        cores = statistics.median(one.cores for one in calibrations)
        print(f"{machine()}, of which others left {cores:.2f}; {given.rounds} rounds of {given.seconds} s each\n")
        print(check_table(cases))
        print(f"\nat most {worst(cases):.0%} off; within {GOAL:.0%}: {'yes' if worst(cases) <= GOAL else 'no'}")
        sys.exit(worst(cases) > GOAL)


if __name__ == "__main__":
    main()
