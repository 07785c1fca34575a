"""A short run of every target from a fixed seed, and whatever a long run has found. `make fuzz` runs long."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from suite import each_row, rounds
from tests.fuzz import seeds
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, TOOLS, Target

from codemode.execution.resume import open_unexpired_interrupt
from codemode.protocol.continuation import Continuation
from codemode.source.checks import find_program_problems
from codemode.surfaces.code_mode.outcome import CODE_MODE
from codemode.workers.supply import HelloValidator

INPUTS = {"analysis": rounds(500, 3000), "interrupt": rounds(500, 3000), "modules": rounds(250, 1500)}
MOST_INPUTS = rounds(1250, 8000)
FINDINGS = Path(__file__).parent / "findings"


def run_some(target: Target, count: int) -> None:
    """Run the first mutations, and name the one that ends wrongly."""
    for data in islice(mutated(target.seeds, target.words, Random(2026)), count):
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"{target.name}: {data!r:.2000}")
            raise


@each_row("name", TARGETS)
def test_a_short_run(name: str) -> None:
    run_some(TARGETS[name], INPUTS.get(name, MOST_INPUTS))


def test_what_was_found_before() -> None:
    for path in sorted(FINDINGS.glob("*/*")):
        TARGETS[path.parent.name].run(path.read_bytes())


def test_seeds_get_far() -> None:
    """Seeds that were refused at once would make every run a waste."""
    read, _ = open_unexpired_interrupt(seeds.signed_interrupt(), CODE_MODE, seeds.OPTIONS)
    assert Continuation.from_dict(read.to_dict()) == read
    assert len(read.ledger.entries) == len(seeds.ENTRIES)
    assert find_program_problems(seeds.FACTS, TOOLS.keys(), TOOLS.get) != []
    check = HelloValidator(seeds.IMAGE, isolation_required=False)
    check.check_and_record_hello(b"H", seeds.HELLO_SEEDS[1][2:])
    assert check.report is not None


def test_a_finding_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the continuation that is gone is noticed within the short run."""
    monkeypatch.setattr("codemode.protocol.continuation.read_text", lambda value: value)
    with pytest.raises((AttributeError, TypeError, AssertionError)):
        run_some(TARGETS["continuation"], MOST_INPUTS)
