"""Guard and journal on the database of a graph: which database that is, and how a thread goes on from the journal."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool, durable_continuation
from codemode_langchain.durable import open_checkpoint_store
from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from required import missing
from scripted_agent import APPROVE, CONFIG, START, Session, agent, content, results
from suite import full_only

from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


# --- which database ---


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()


async def opened(store: Any) -> None:
    await store.list(tenant="acme")
    await store.aclose()


def test_the_file_of_a_checkpointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteSaver.from_conn_string("one.sqlite") as saver:
        saver.setup()
        asyncio.run(opened(open_checkpoint_store(saver)))
    assert {"checkpoints", "codemode_journals"} <= tables(tmp_path / "one.sqlite")

    async def main() -> None:
        async with AsyncSqliteSaver.from_conn_string("two.sqlite") as saver:
            await saver.setup()
            await opened(open_checkpoint_store(saver))

    asyncio.run(main())
    assert {"checkpoints", "codemode_journals"} <= tables(tmp_path / "two.sqlite")
    for where in ("three.sqlite", Path("three.sqlite")):
        asyncio.run(opened(open_checkpoint_store(where)))
        assert "codemode_journals" in tables(tmp_path / "three.sqlite")


def test_the_database_of_a_checkpointer_of_postgres() -> None:
    if find_spec("langgraph.checkpoint.postgres") is None:
        missing("postgres", "langgraph-checkpoint-postgres is not installed")
    from codemode_langchain.durable import _find_postgres_dsn
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import ConnectionPool

    class Info:
        dsn = "host=there dbname=one"
        password = "a b'c"

    class Connection:
        info = Info()

    def told(connection: Any) -> Any:
        dsn = _find_postgres_dsn(connection)
        return None if dsn is None else conninfo_to_dict(dsn)

    assert told(Connection()) == {"host": "there", "dbname": "one", "password": "a b'c"}
    pooled = ConnectionPool("host=there", open=False, kwargs={"dbname": "two", "autocommit": True})
    assert told(pooled) == {"host": "there", "dbname": "two"}
    assert told(ConnectionPool(open=False)) is None
    assert told(object()) is None


@pytest.mark.parametrize("saver", [InMemorySaver(), object(), None])
def test_a_checkpointer_that_names_no_database(saver: Any) -> None:
    with pytest.raises(ValueError, match="name the database"):
        durable_continuation(saver, keys="k")


def test_checkpoints_that_end_with_their_process() -> None:
    with SqliteSaver.from_conn_string(":memory:") as saver, pytest.raises(ValueError, match="end with their process"):
        durable_continuation(saver, keys="k")


def test_a_connection_that_is_another_thread_s(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as other:
        connection = other.submit(sqlite3.connect, tmp_path / "one.sqlite").result()
        with pytest.raises(ValueError, match="name the database"):
            open_checkpoint_store(SqliteSaver(connection))
        other.submit(connection.close).result()


def test_options_on_a_store_of_ones_own(tmp_path: Path) -> None:
    store = SqliteInterruptStore(tmp_path / "one.sqlite")
    made = durable_continuation(store, keys="k", tenant="acme", app="mine", seal=True)
    assert (made.guard, made.keys, made.seal) == (store.guard, (b"k",), True)
    with pytest.raises(TypeError, match="nothing"):
        durable_continuation(store, nothing=1)


# --- how a thread goes on ---


class Dies(BaseException):
    """Ends a run as nothing that a program could be told of."""


class Desk:
    """Tools, one of which dies as often as it is told to, and a store that outlives each agent."""

    def __init__(self, is_async: bool, *more: Any) -> None:
        self.is_async = is_async
        self.more = more
        self.done: list[str] = []
        self.dying = 1
        self.saver = InMemorySaver()
        self.store = MemoryInterruptStore()
        desk = self

        @tool
        def write(text: str) -> str:
            """Write."""
            desk.done.append(text)
            if text == "dies" and desk.dying:
                desk.dying -= 1
                raise Dies
            return text

        @tool
        def ask(question: str) -> str:
            """Ask a person."""
            return str(interrupt(question))

        self.tools = [write, ask]

    def session(self, *programs: str, journal: Any = None, is_journaled: bool = True, approve: Any = None) -> Session:
        continuation: Any = {"keys": "k" * 32, "guard": self.store.guard}
        if is_journaled:
            continuation["journal"] = journal or self.store.journal(tenant="", app="test")
        middleware = CodeModeMiddleware(options={"continuation": continuation}, approve=approve)
        return Session(
            agent(list(programs), self.tools, middleware, *self.more, checkpointer=self.saver), self.is_async
        )

    def dies(self, run: Any) -> None:
        with pytest.raises(BaseException, match=r"Dies|cancelled|^$"):
            run()
        gc.collect()  # here asyncio says of the task that died that nobody asked, and not while pytest compiles


THREE = """
const first = await tools.write({ text: "first" });
const second = await tools.write({ text: "dies" });
return [first, second, await tools.write({ text: "last" })];
"""


ANSWERED = [
    (False, APPROVE, '["first", "dies", "last"]', ["first", "dies", "dies", "last"]),
    (True, {"type": "respond", "message": "did it"}, '["first", "did it", "last"]', ["first", "dies", "last"]),
    (False, {"type": "reject", "message": "no card"}, "no card", ["first", "dies"]),
    (True, {"type": "reject"}, "a person says that this call failed", ["first", "dies"]),
]


@pytest.mark.parametrize(
    ("is_async", "answer", "said", "done"),
    [*ANSWERED[:2], *full_only(*ANSWERED[2:], *((not is_async, *rest) for is_async, *rest in ANSWERED))],
)
def test_only_the_call_of_unknown_outcome_is_asked_about(is_async: bool, answer: Any, said: str, done: Any) -> None:
    desk = Desk(is_async)
    desk.dies(desk.session(THREE).start)
    session = desk.session()
    (asked,) = session.send(None)["__interrupt__"]
    shown = asked.value
    assert (shown["type"], shown["name"], shown["args"]) == ("unknown_outcome", "write", {"text": "dies"})
    assert shown["review_configs"][0]["allowed_decisions"] == ["approve", "reject", "respond"]
    assert desk.done == ["first", "dies"]
    (message,) = results(session.answer({asked.id: answer}))
    assert said in message.content
    assert desk.done == done


class Hangs:
    """A tool that hangs in its calls ``hangs``, as often as it is told to, until its run is cancelled."""

    def __init__(self, desk: Desk, times: int) -> None:
        self.desk, self.times = desk, times
        self.reached = asyncio.Event()
        hanging = self

        @tool
        async def write(text: str) -> str:
            """Write."""
            desk.done.append(text)
            if text == "hangs" and hanging.times:
                hanging.times -= 1
                hanging.reached.set()
                await asyncio.Event().wait()
            return text

        desk.tools[0] = write

    async def cancelled(self, given: Any, *programs: str) -> None:
        """Run until the tool hangs."""
        self.reached.clear()
        running = asyncio.create_task(self.graph(*programs).ainvoke(given, CONFIG))
        reached = asyncio.create_task(self.reached.wait())
        await asyncio.wait([reached, running], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert self.reached.is_set(), running  # else it has ended
        running.cancel()
        await asyncio.wait([running])

    async def run(self, given: Any, *programs: str) -> Any:
        return await self.graph(*programs).ainvoke(given, CONFIG)

    def graph(self, *programs: str) -> Any:
        return self.desk.session(*programs).graph


def test_a_call_that_is_cut_off_again_is_asked_about_again() -> None:
    desk = Desk(True)
    js = 'return [await tools.write({ text: "first" }), await tools.write({ text: "hangs" })]'

    async def main() -> None:
        tools = Hangs(desk, 2)
        await tools.cancelled(START, js)
        (first,) = (await tools.run(None))["__interrupt__"]
        await tools.cancelled(Command(resume={first.id: APPROVE}))
        (second,) = (await tools.run(None))["__interrupt__"]
        assert second.value["args"] == {"text": "hangs"}
        assert second.id != first.id
        output = await tools.run(Command(resume={second.id: APPROVE}))
        assert content(output) == '["first", "hangs"]'
        assert desk.done == ["first", "hangs", "hangs", "hangs"]

    asyncio.run(main())


def test_calls_of_a_process_that_has_ended_count_where_calls_are_limited() -> None:
    js = """
    const ended = [];
    for (const text of ["first", "hangs", "second", "third"]) {
      try { ended.push(await tools.write({ text })); } catch (error) { ended.push(error.message); }
    }
    return ended;
    """

    async def main() -> None:
        desk = Desk(True, ToolCallLimitMiddleware(tool_name="write", thread_limit=3))
        tools = Hangs(desk, 1)
        await tools.cancelled(START, js)
        (asked,) = (await tools.run(None))["__interrupt__"]
        output = await tools.run(Command(resume={asked.id: APPROVE}))
        too_much = "Tool call limit exceeded. Do not call 'write' again."
        assert json.loads(content(output)) == ["first", "hangs", "second", too_much]
        assert desk.done == ["first", "hangs", "hangs", "second"]

    asyncio.run(main())


def test_what_was_answered_before_the_end_counts() -> None:
    """Also where the answer to another question comes before the thread has gone on."""
    desk = Desk(True)
    js = """
    const [why, when] = await Promise.all(["why", "when"].map(async (question) => {
      const answer = await tools.ask({ question });
      await tools.write({ text: answer });
      return answer;
    }));
    return [why, when];
    """

    async def main() -> None:
        tools = Hangs(desk, 1)
        waiting = {one.value: one.id for one in (await tools.run(START, js))["__interrupt__"]}
        await tools.cancelled(Command(resume={waiting["why"]: "hangs"}))
        output = await tools.run(Command(resume={waiting["when"]: "now"}))
        (asked,) = output["__interrupt__"]
        assert (asked.value["type"], asked.value["args"]) == ("unknown_outcome", {"text": "hangs"})
        output = await tools.run(Command(resume={asked.id: {"type": "respond", "message": "ok"}}))
        assert content(output) == '["hangs", "now"]'
        assert desk.done == ["hangs", "now"]

    asyncio.run(main())


def test_where_nobody_needs_to_be_asked_it_goes_on_by_itself() -> None:
    desk = Desk(True)

    async def main() -> None:
        tools = Hangs(desk, 2)
        desk.tools[0].metadata = {"idempotentHint": True}
        js = 'return [await tools.ask({ question: "why" }), await tools.write({ text: "hangs" })]'
        (asked,) = (await tools.run(START, js))["__interrupt__"]
        await tools.cancelled(Command(resume={asked.id: "because"}))
        await tools.cancelled(None)
        assert content(await tools.run(None)) == '["because", "hangs"]'
        assert desk.done == ["hangs"] * 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("is_async", "journaled_first"), [(False, False), *full_only((True, True), (False, True), (True, False))]
)
def test_a_part_that_no_journal_tells_of_is_asked_about_as_a_whole(is_async: bool, journaled_first: bool) -> None:
    desk = Desk(is_async)
    desk.dies(desk.session(THREE, is_journaled=journaled_first).start)
    session = desk.session(is_journaled=not journaled_first)
    (asked,) = session.send(None)["__interrupt__"]
    assert (asked.value["type"], asked.value["name"]) == ("unknown_outcome", "codeMode")
    assert desk.done == ["first", "dies"]
    (message,) = results(session.answer({asked.id: {"type": "reject"}}))
    assert (message.status, desk.done) == ("error", ["first", "dies"])


class Away(MemoryJournal):
    """A journal whose database is away for a while."""

    is_away = False

    async def write(self, opened: Any, lines: Any) -> bool:
        if self.is_away:
            raise OSError("the database is away")
        return await super().write(opened, lines)

    def write_nowait(self, opened: Any, lines: Any) -> bool:
        if self.is_away:
            raise OSError("the database is away")
        return super().write_nowait(opened, lines)


def test_a_thread_whose_journal_is_away_can_be_invoked_again(is_async: bool) -> None:
    desk, journal = Desk(is_async), Away(lease_ms=300)
    desk.dying = 0
    journal.is_away = True
    with pytest.raises(Exception, match="the database is away"):
        desk.session(THREE, journal=journal).start()
    assert desk.done == []
    journal.is_away = False
    output = desk.session(journal=journal).send(None)
    assert content(output) == '["first", "dies", "last"]'
    assert desk.done == ["first", "dies", "last"]


def test_without_a_thread_nothing_would_find_the_journal() -> None:
    store = MemoryInterruptStore()
    options: Any = {"continuation": durable_continuation(store, keys="k")}
    with pytest.raises(ValueError, match="conversation_id"):
        create_code_mode_tool([], options).invoke({"js": "return 1"})
