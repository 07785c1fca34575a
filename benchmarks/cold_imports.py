"""What a cold start imports and what it costs: `python -m benchmarks.cold_imports`, `--root` for another checkout's.

Milliseconds of the importing thread's own CPU, of each module the least of all rounds: a busy machine makes a wall
clock of no use. "In the way" is what the main thread imports; the rest is imported beside it, while the zygote boots.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from .processes import ROOT, environment

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
        found.append((name, taken - inner.pop(), threading.current_thread() is main))
        if inner:
            inner[-1] += taken
found, bootstrap._find_and_load = [], measured
sys.path.insert(0, "")
from benchmarks.host import cold
cold(sys.argv[1])
print(json.dumps(found))
"""


def measure(root: Path, workload: str, rounds: int) -> dict[str, tuple[float, bool]]:
    """Return milliseconds by module, and whether the main thread imported it. The first round fills the caches."""
    least: dict[str, tuple[float, bool]] = {}
    command = [sys.executable, "-c", _HOST, workload]
    variables = environment() | {"PYTHONPATH": str(root / "src")}
    for number in range(rounds + 1):
        done = subprocess.run(command, cwd=root, env=variables, stdout=subprocess.PIPE, check=True, timeout=120)
        if number == 0:
            continue
        for name, nanoseconds, in_the_way in json.loads(done.stdout.splitlines()[-1]):
            milliseconds = nanoseconds / 1e6
            least[name] = min(milliseconds, least.get(name, (milliseconds,))[0]), in_the_way
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
    in_the_way: dict[str, float] = defaultdict(float)
    beside: dict[str, float] = defaultdict(float)
    modules = Counter[str]()
    for name, (milliseconds, is_in_the_way) in found.items():
        package = name.partition(".")[0]
        (in_the_way if is_in_the_way else beside)[package] += milliseconds
        modules[package] += 1
    print("| package | modules | in the way | beside |\n|---|---|---|---|")
    dearest = sorted(modules, key=lambda package: -in_the_way[package] - beside[package])
    for package in dearest[: given.rows]:
        print(f"| {package} | {modules[package]} | {in_the_way[package]:.1f} | {beside[package]:.1f} |")
    print(f"| **all** | {len(found)} | {sum(in_the_way.values()):.1f} | {sum(beside.values()):.1f} |")


if __name__ == "__main__":
    main()
