"""What a guard keeps: sealed where continuations are, in files that nobody else can read."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import time

import pytest
from pausing import PAUSING, Spy, go_on, start
from waiting import within

from codemode import CodeModeError, CodeModeProtocolError
from codemode.continuations.guard import Claim
from codemode.stores import SqliteInterruptStore

OK = {"approved": True}


@pytest.fixture
def spy():
    return Spy()


def having(guard, **continuation):
    return {**PAUSING, "continuation": {"guard": guard, **continuation}}


CARD = "4711-0815"


def holds(path, text):
    return any(text.encode() in file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize("compress", [False, True])
def test_where_continuations_are_sealed_so_is_what_the_guard_keeps(tmp_path, spy, compress):
    path = tmp_path / "claims"
    options = having(SqliteInterruptStore(path).guard, seal=True, compress=compress, keys="k")
    tools = [
        spy.guarded("pay", input_schema=dict),
        spy.tool("card", lambda *_: CARD),
        spy.tool("fail", lambda *_: 1 / 0),
    ]
    js = "await tools.pay({}); const card = await tools.card(); %s"
    endings = {
        "return card": CARD,
        "await tools.pay({card}); return 1": None,
        "throw new Error(card)": None,
    }
    for ending in endings:
        interrupt = start(js % ending, tools, options)
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(go_on(interrupt, tools, {**OK, "input": {"of": CARD}}, options=options))
            except CodeModeError as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1]
        assert CARD in str(outcomes[0]) or ending.startswith("await")
        assert not holds(path, CARD)
    assert [name for name, _ in spy.ran].count("pay") == 3


def test_a_sealed_outcome_fits_its_own_continuation_alone(tmp_path, spy):
    path = tmp_path / "claims"
    options = having(SqliteInterruptStore(path).guard, seal=True, keys="k")
    tools = [spy.guarded()]
    interrupts = [start(f"await tools.refund(1); return {n}", tools, options) for n in (1, 2)]
    assert [go_on(one, tools, OK, options=options) for one in interrupts] == [1, 2]
    connection = sqlite3.connect(path)
    outcomes = [row[0] for row in connection.execute("SELECT outcome FROM resumes ORDER BY rowid")]
    connection.execute("UPDATE resumes SET outcome = CASE outcome WHEN ? THEN ? ELSE ? END", (*outcomes, outcomes[0]))
    connection.commit()
    connection.close()
    for one in interrupts:
        with pytest.raises(CodeModeProtocolError):
            go_on(one, tools, OK, options=options)
    assert len(spy.ran) == 2


def test_answers_are_not_told_by_their_digest(tmp_path, spy):
    path = tmp_path / "claims"
    options = having(SqliteInterruptStore(path).guard, keys="k")
    interrupt = start("return await tools.refund(1)", [spy.guarded()], options)
    go_on(interrupt, [spy.guarded()], OK, options=options)
    answers = json.dumps({interrupt.interrupt_id: OK}, separators=(",", ":"))
    assert not holds(path, hashlib.sha256(answers.encode()).hexdigest())


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_files_of_a_guard_are_its_owners_alone(tmp_path, umask):
    before = os.umask(umask)
    try:
        path = tmp_path / "claims"
        guard = SqliteInterruptStore(path).guard
        with guard._transaction() as connection:
            connection.execute("INSERT INTO resumes VALUES ('k', 'a', 1, 1, 1, NULL)")
            modes = {file.name: mode_of(file) for file in tmp_path.iterdir()}
        assert modes == {"claims": 0o600, "claims-journal": 0o600}
    finally:
        os.umask(before)


@pytest.mark.parametrize("beside", ["-wal", "-shm"])
def test_what_was_open_to_others_is_closed(tmp_path, beside):
    path = tmp_path / "claims"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    for name in ("claims", "claims-wal", "claims-shm"):
        (tmp_path / name).chmod(0o644)
    guard = SqliteInterruptStore(path).guard
    assert within(guard.claim(Claim("k", "yes", time.time_ns()))) is None
    assert (mode_of(path), mode_of(tmp_path / f"claims{beside}")) == (0o600, 0o600)
    connection.close()
