"""What a cold start imports and what it costs: `python -m benchmarks.cold_imports`, `--root` for another checkout's.

Milliseconds of the importing thread's own CPU, of each module the least of all rounds: a busy machine makes a wall
clock of no use. "Before" is what is imported until the zygote is started, which keeps it waiting; "in the way" is what
the main thread imports after that, and the rest is imported beside it, while the zygote boots.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from .processes import ROOT, environment

PLACES = ("before", "in the way", "beside")
_HOST = """
import importlib._bootstrap as bootstrap, json, sys, threading, time
def measured(name, import_, find=bootstrap._find_and_load, here=threading.local(), main=threading.main_thread()):
    inner = here.__dict__.setdefault("inner", [])
    inner.append(0)
    began = time.thread_time_ns()
    try:
        return find(name, import_)
    finally:
        taken = time.thread_time_ns() - began
        place = "before" if not started else "in the way" if threading.current_thread() is main else "beside"
        found.append((name, taken - inner.pop(), place))
        if inner:
            inner[-1] += taken
found, started, bootstrap._find_and_load = [], [], measured
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)
sys.path.insert(0, "")
from benchmarks.host import cold
cold(sys.argv[1])
print(json.dumps(found))
"""


def measure(root: Path, workload: str, rounds: int) -> dict[str, tuple[float, str]]:
    """Return milliseconds by module, and one of `PLACES`, where it was imported. The first round fills the caches."""
    least: dict[str, tuple[float, str]] = {}
    command = [sys.executable, "-c", _HOST, workload]
    variables = environment() | {"PYTHONPATH": str(root / "src")}
    for number in range(rounds + 1):
        done = subprocess.run(command, cwd=root, env=variables, stdout=subprocess.PIPE, check=True, timeout=120)
        if number == 0:
            continue
        for name, nanoseconds, place in json.loads(done.stdout.splitlines()[-1]):
            milliseconds = nanoseconds / 1e6
            least[name] = min(milliseconds, least.get(name, (milliseconds,))[0]), place
    return least


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--workload", default="W2")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=14)
    given = parser.parse_args()
    found = measure(given.root.resolve(), given.workload, given.rounds)
    spent: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PLACES, 0.0))
    modules = Counter[str]()
    for name, (milliseconds, place) in found.items():
        package = name.partition(".")[0]
        spent[package][place] += milliseconds
        modules[package] += 1
    print(f"| package | modules | {' | '.join(PLACES)} |\n|---|---|{'---|' * len(PLACES)}")
    for package in sorted(modules, key=lambda package: -sum(spent[package].values()))[: given.rows]:
        print(_row(package, modules[package], spent[package]))
    sums = {place: sum(one[place] for one in spent.values()) for place in PLACES}
    print(_row("**all**", len(found), sums))


def _row(name: str, modules: int, spent: Mapping[str, float]) -> str:
    return f"| {name} | {modules} | {' | '.join(f'{spent[place]:.1f}' for place in PLACES)} |"


if __name__ == "__main__":
    main()
