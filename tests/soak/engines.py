"""Programs in steps of DBOS whose hosts are killed at random moments, and recovered by DBOS in other processes.

``python -m tests.soak.engines [workflows] [seed]`` runs so many on SQLite, and prints what was killed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "support"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))

from forked_hosts import ForkedHosts  # noqa: E402 - of a folder that only pytest knows by itself

MOST_KILL_MS = 350
"""Longer than a program takes: some hosts come to its end, or wait for their person, when they are killed."""
SOON_MS = 15
KEYS = [*(f"a{n}" for n in range(5)), *(f"b{n}" for n in range(4)), *(f"c{n}" for n in range(4))]
VALUE = {"done": KEYS, "refund": "refunded a", "looked": "seen"}
EFFECTS = sorted([*KEYS, "refund a"])


@dataclass
class Workflow:
    """One workflow and its hosts. ``system`` and ``store`` are the databases of DBOS and of the store."""

    hosts: ForkedHosts
    folder: Path
    system: str
    store: str
    is_journaled: bool = True
    number: int = 0
    killed_after: list[int] = field(default_factory=list[int])

    def lines(self, file: str) -> list[str]:
        """What hosts have noted down."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def host_that_dies_in(self, key: str) -> Any:
        """Run one host that is killed right after this effect."""
        return self.host(None, dies_in=key)

    def host(self, kill_after_ms: float | None, *, after: int = 0, dies_in: str | None = None) -> Any:
        """Run one host. Returns what the workflow came to; None when the host was killed.

        It is killed so long after its first step has begun, or after so many effects.
        """
        given: dict[str, Any] = {"folder": str(self.folder), "number": self.number, "after": after}
        given |= {"kill_after_ms": kill_after_ms, "dies_in": dies_in}
        given |= {"system": self.system, "store": self.store, "is_journaled": self.is_journaled}
        self.number += 1
        ended = self.hosts.run(given)
        if ended.is_killed:
            self.killed_after.append(len(self.lines("effects")))
        return ended.value

    def to_its_end(self, chance: random.Random, kills: int) -> Any:
        """Kill so many hosts, each at a random moment, and let the next go on. Returns what the workflow came to.

        The first one is killed before it has come to its end, however fast it is; a later one may be done before.
        """
        self.host(chance.uniform(0, SOON_MS), after=chance.randint(1, 5))
        for _ in range(kills - 1):
            value = self.host(chance.uniform(0, MOST_KILL_MS))
            if value is not None:
                return value
        return self.host(None)


def check(workflow: Workflow, value: Any) -> None:
    """Every effect once, the value right, and the approval under one id, however often it was shown."""
    twice = {key: times for key, times in Counter(workflow.lines("effects")).items() if times > 1}
    assert not twice, (twice, workflow.killed_after)
    assert sorted(workflow.lines("effects")) == EFFECTS
    assert value == VALUE
    shown = [json.loads(line) for line in workflow.lines("shown")]
    approvals = {(request_id, json.dumps(given)) for request_id, _, kind, given in shown if kind == "approval"}
    assert len(approvals) == 1, approvals


def main() -> None:
    """Run many, on SQLite."""
    workflows, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 30), (int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    killed: list[int] = []
    asked: Counter[str] = Counter()
    with ForkedHosts("dbos_host") as hosts:
        for number in range(workflows):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                one = Workflow(hosts, folder, f"sqlite:///{folder / 'dbos.sqlite'}", str(folder / "store.sqlite"))
                check(one, one.to_its_end(random.Random(f"{seed} {number}"), kills=6))
                killed += one.killed_after
                asked.update(json.loads(line)[2] for line in one.lines("shown"))
    print(f"{workflows} workflows, {len(killed)} hosts killed after {sorted(killed)} effects; asked: {dict(asked)}")


if __name__ == "__main__":
    main()
