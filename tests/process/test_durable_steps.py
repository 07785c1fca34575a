"""Programs in steps of DBOS: a host that is killed at any moment is recovered in another process, once-only inside."""

from __future__ import annotations

import json
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest
from forked_hosts import ForkedHosts
from postgres_cluster import cluster, new_database
from required import missing, require_dbos_on_sqlite
from suite import rounds
from tests.soak.engines import Workflow, check

if find_spec("dbos") is None:
    missing("dbos", "dbos is not installed")


@pytest.fixture(scope="module")
def hosts() -> Iterator[ForkedHosts]:
    with ForkedHosts("dbos_host") as forked:
        yield forked


def on_sqlite(hosts: ForkedHosts, folder: Path, *, is_journaled: bool = True) -> Workflow:
    require_dbos_on_sqlite()
    system = f"sqlite:///{folder / 'dbos.sqlite'}"
    return Workflow(hosts, folder, system, str(folder / "store.sqlite"), is_journaled=is_journaled)


def asked(workflow: Workflow) -> set[str]:
    return {json.loads(line)[2] for line in workflow.lines("shown")}


@pytest.mark.full
def test_killed_at_random_moments_on_sqlite(hosts: ForkedHosts, tmp_path: Path) -> None:
    workflow = on_sqlite(hosts, tmp_path)
    check(workflow, workflow.to_its_end(random.Random(1), kills=rounds(1, 2)))
    assert workflow.killed_after
    assert "approval" in asked(workflow)


@pytest.mark.full
def test_killed_at_random_moments_on_postgres(hosts: ForkedHosts, tmp_path: Path) -> None:
    """With the records of DBOS and the store in one database."""
    with cluster() as folder:
        name = f"t{secrets.token_hex(6)}"
        dsn = new_database(folder, name)
        workflow = Workflow(hosts, tmp_path, f"postgresql://tests@/{name}?host={quote(folder, safe='')}", dsn)
        check(workflow, workflow.to_its_end(random.Random(2), kills=2))
    assert workflow.killed_after
    assert "approval" in asked(workflow)


def test_killed_between_an_effect_and_its_outcome(hosts: ForkedHosts, tmp_path: Path) -> None:
    workflow = on_sqlite(hosts, tmp_path)
    assert workflow.host_that_dies_in("a3") is None
    assert workflow.lines("effects") == ["a0", "a1", "a2", "a3"]
    check(workflow, workflow.host(None))
    assert asked(workflow) == {"approval", "code-mode/unknown-outcome"}


@pytest.mark.full
def test_without_a_journal_what_is_run_again_is_done_again(hosts: ForkedHosts, tmp_path: Path) -> None:
    workflow = on_sqlite(hosts, tmp_path, is_journaled=False)
    assert workflow.host_that_dies_in("a3") is None
    workflow.host(None)
    assert Counter(workflow.lines("effects"))["a0"] == 2
