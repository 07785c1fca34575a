"""Servers whose tools change: listed when somebody needs them, once for all who do; one that fails costs nobody."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row
from waiting import until, within

from codemode import ModuleServer, Tool, create_modules_tool
from codemode.errors import CodeModeAuthenticationError
from codemode.host import steps
from codemode.surfaces.modules import servers as listing_of_servers
from codemode.surfaces.modules.executor import RunCatalog
from codemode.surfaces.modules.server_set import ServerSet


class Live:
    """A server whose tools change. ``gate`` holds back its listings until it is set."""

    def __init__(self, server_id: str, *tools: str, failure: BaseException | None = None) -> None:
        self.server_id = server_id
        self.given = tools
        self.failure = failure
        self.revision: Any = 1
        self.notes: tuple[str, ...] = ()
        self.listings = 0
        self.gate: asyncio.Event | None = None

    async def tools(self) -> dict[str, Any]:
        self.listings += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return {name: lambda: 1 for name in self.given}

    def change(self, *tools: str) -> None:
        self.given, self.revision = tools, object()


def imports(*paths: str, dynamic: str | None = "") -> Any:
    said: list[Any] = [{"from": f"@codemode/servers/{path}", "names": [["*", "x"]]} for path in paths]
    return {"module": {"imports": said, "dynamic": [] if dynamic == "" else [{"from": dynamic}]}}


async def view_of(servers: ServerSet, facts: Any, given: Any = None) -> RunCatalog:
    view = RunCatalog(servers)
    doing = view.prepare_for_program(facts, given)
    if doing is not None:
        await doing
    if facts is None:
        view.check_resumed_program(given, ())
    return view


def test_nothing_is_listed_before_somebody_needs_it():
    one, two = Live("one", "a"), Live("two", "b")
    servers = ServerSet([one, two])
    assert servers.get_or_build_catalog().names() == ()
    view = within(view_of(servers, imports("one")))
    assert view.names() == ("one.a",)
    assert (one.listings, two.listings) == (1, 0)


def test_a_changed_revision_is_listed_before_the_next_run_that_imports():
    async def main() -> None:
        one, two = Live("one", "a"), Live("two", "b")
        servers = ServerSet([one, two])
        first = await view_of(servers, imports("one", "two"))
        again = await view_of(servers, imports("one"))
        assert again.names() == first.names()
        assert again.catalog is first.catalog
        one.change("a", "c")
        two.change("z")
        later = await view_of(servers, imports("one"))
        assert later.names() == ("one.a", "one.c", "two.b")
        assert first.names() == ("one.a", "two.b")  # a running program keeps its own
        assert (one.listings, two.listings) == (2, 1)
        assert [note["code"] for note in first.diagnose_tool_changes()] == ["TOOLS_CHANGED", "TOOLS_CHANGED"]
        assert later.diagnose_tool_changes() == []

    within(main())


@pytest.mark.parametrize("facts", [imports(dynamic=None), imports(dynamic="@codemode/discovery")])
def test_what_may_ask_for_any_server_has_the_last_listing_of_all(facts: Any):
    async def main() -> None:
        one, two = Live("one", "a"), Live("two", "b", failure=RuntimeError("down"))
        servers = ServerSet([one, two])
        view = await view_of(servers, facts)
        assert view.names() == ("one.a",)
        assert [note["code"] for note in view.notes] == ["CAPABILITY_UNAVAILABLE"]
        one.change("z")
        two.failure = None
        later = await view_of(servers, facts)
        assert later.names() == ("one.a", "two.b")
        assert later.notes == []

    within(main())


def test_servers_are_listed_all_at_once():
    async def main() -> None:
        all_of_them = [Live(f"s{at}", "a") for at in range(20)]
        gate = asyncio.Event()
        for one in all_of_them:
            one.gate = gate
        preparing = asyncio.create_task(view_of(ServerSet(all_of_them), imports(dynamic=None)))
        await until(lambda: all(one.listings for one in all_of_them))
        gate.set()
        assert len((await preparing).names()) == 20

    within(main())


def test_concurrent_runs_share_one_listing_and_none_ends_it_for_the_others():
    async def main() -> None:
        one = Live("one", "a")
        one.gate = asyncio.Event()
        servers = ServerSet([one])
        runs = [asyncio.create_task(view_of(servers, imports("one"))) for _ in range(5)]
        await until(lambda: one.listings)
        runs[0].cancel()
        await asyncio.wait(runs[:1])
        one.gate.set()
        for run in runs[1:]:
            assert (await run).names() == ("one.a",)
        assert one.listings == 1

    within(main())


def test_loops_in_other_threads_share_a_listing_and_survive_the_end_of_the_loop_that_lists():
    one = Live("one", "a")
    servers = ServerSet([one])
    begun, names = threading.Event(), list[Any]()

    async def begins() -> None:
        one.gate = asyncio.Event()
        run = asyncio.create_task(view_of(servers, imports("one")))
        await until(lambda: one.listings)
        begun.set()
        await until(lambda: waiting.is_alive())
        run.cancel()  # and the loop ends, its gate never opened

    async def waits() -> None:
        names.append((await view_of(servers, imports("one"))).names())

    def second() -> None:
        begun.wait(60)
        one.gate = None
        within(waits())

    waiting = threading.Thread(target=second)
    waiting.start()
    within(begins())
    waiting.join(60)
    assert names == [("one.a",)]


@each_row(
    "failure, said",
    [
        (RuntimeError("password is /etc/x"), "cannot be reached"),
        (CodeModeAuthenticationError("expired"), "sign in"),
        (ValueError("bad"), "cannot be reached"),
        (asyncio.CancelledError(), "cannot be reached"),
        (SystemExit(3), "cannot be reached"),
        (BaseExceptionGroup("several", [asyncio.CancelledError(), ValueError("bad")]), "cannot be reached"),
    ],
)
def test_a_server_that_fails_costs_the_others_nothing(failure: BaseException, said: str):
    async def main() -> None:
        one, two = Live("one", "a"), Live("two", failure=failure)
        servers = ServerSet([two, one, ModuleServer("three", {"c": lambda: 1})])
        view = await view_of(servers, imports("one", "two"))
        assert view.names() == ("one.a", "three.c")
        refusal = view.find_program_error(imports("one", "two"))
        assert refusal is not None
        assert said in refusal.message
        assert "/etc" not in refusal.message
        assert view.find_program_error(imports("one")) is None
        two.failure = None
        assert "two.x" not in (await view_of(servers, imports("two"))).names()
        assert two.listings == 2

    within(main())


class Awkward(Live):
    def __init__(self, server_id: str, given: Any) -> None:
        super().__init__(server_id)
        self.odd = given

    async def tools(self) -> Any:
        return self.odd


class Passing(Awkward):
    async def tools(self) -> Any:
        return self.odd()


class NoRevision(Live):
    @property
    def revision(self) -> Any:
        raise RuntimeError("not connected")

    @revision.setter
    def revision(self, value: Any) -> None:
        pass


@each_row("given", [None, 5, "text", [object()], {"a": 5}, {5: lambda: 1}])
def test_what_is_no_listing_is_a_server_that_fails(given: Any):
    view = within(view_of(ServerSet([Awkward("odd", given), Live("one", "a")]), imports("odd", "one")))
    assert view.names() == ("one.a",)


def test_a_revision_that_raises_is_a_server_that_fails():
    view = within(view_of(ServerSet([NoRevision("odd", "x"), Live("one", "a")]), imports("odd", "one")))
    assert view.names() == ("one.a",)


def test_a_listing_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing_of_servers, "LISTING_SECONDS", 0.01)

    async def main() -> None:
        one = Live("one", "a")
        one.gate = asyncio.Event()
        view = await view_of(ServerSet([one, ModuleServer("two", {"b": lambda: 1})]), imports("one", "two"))
        assert view.names() == ("two.b",)

    within(main())


NAMES = ["then", "default", "$search", "a b", "x" * 400, "\x00", "a.b", "constructor", "__proto__", "größe"]


@pytest.mark.parametrize("make", [ModuleServer, lambda server_id, tools: Awkward(server_id, tools)])
def test_no_tool_is_lost_for_its_name(make: Callable[[str, Any], Any]):
    given = {name: lambda: 1 for name in [*NAMES, "", "y" * 600, "half \ud800 a pair"]}
    view = within(view_of(ServerSet([make("s", given)]), imports("s")))
    assert set(view.names()) == {f"s.{name}" for name in NAMES}


def test_no_tool_is_lost_for_its_schema():
    broken = [{"type": 5}, {"$ref": "#/nothing"}, {"properties": 7}, {"type": "array", "items": [{"type": "string"}]}]
    tools = {f"t{at}": Tool("t", execute=lambda value: value, input_schema=one) for at, one in enumerate(broken)}
    view = within(view_of(ServerSet([ModuleServer("s", tools)]), imports("s")))
    made = [view.get(name) for name in view.names()]
    assert len(made) == len(broken)
    assert all(one is not None and one.validate_input({}) for one in made[:3])


class Refusing(dict[str, Any]):
    """A schema that cannot even be looked at."""

    def __iter__(self) -> Any:
        raise RuntimeError

    keys = items = values = __iter__  # type: ignore[assignment] - they all raise


def annotated(text: Annotated[str, pydantic.Field(pattern="(?=x)")]) -> str:
    return text


@each_row(
    "make",
    [
        lambda: Tool("t", execute=lambda value: value, input_schema={"properties": {"a": {"pattern": "(?!x)y"}}}),
        lambda: Tool("t", execute=lambda value: value, input_schema={"properties": {"a": {"pattern": "("}}}),
        lambda: Tool("t", execute=lambda value: value, input_schema={"enum": [*range(60_000)]}),
        lambda: Tool("t", execute=lambda value: value, input_schema={"title": "x" * 5_000_000}),
        lambda: Tool("t", execute=lambda value: value, input_schema=[{"type": "object"}]),
        lambda: Tool("t", execute=lambda value: value, input_schema=5),
        lambda: Tool("t", execute=lambda value: value, input_schema=Refusing(type="object")),
        lambda: Tool("t", execute=lambda value: value, output_schema=Refusing(type="object")),
        lambda: annotated,
    ],
)
def test_no_server_is_lost_for_a_schema_that_it_only_passes_on(make: Callable[[], Any]):
    """What lists the tools of somebody else can mend none of their schemas, as the author of a tool can."""
    with pytest.raises((ValueError, RuntimeError)):
        ModuleServer("s", {"t": make()})
    view = within(view_of(ServerSet([Passing("s", lambda: {"t": make(), "u": lambda: 1})]), imports("s")))
    assert view.names() == ("s.t", "s.u")
    tool = view.get("s.t")
    assert tool is not None
    tool.validate_input({"text": "y"})


def endless() -> Iterator[Any]:
    while True:
        yield Tool(f"t{next(COUNT)}", execute=None)


COUNT = itertools.count()


@pytest.mark.parametrize(
    "make", [endless, lambda: [lambda: 1] * 50_001, lambda: dict.fromkeys(map(str, range(50_001)))]
)
def test_a_server_with_more_tools_than_anybody_reads_fails_alone(make: Callable[[], Any]):
    view = within(view_of(ServerSet([Passing("much", make), Live("one", "a")]), imports("much", "one")))
    assert view.names() == ("one.a",)


def test_a_listing_that_nobody_waits_for_any_more_ends(monkeypatch: pytest.MonkeyPatch):
    """A thread that went on would take the others' time, and each run would begin one more."""
    begun, ended = threading.Event(), threading.Event()

    async def wait_until_begun(work: Awaitable[Any], _seconds: float) -> None:
        task = asyncio.ensure_future(work)
        await until(begun.is_set)
        task.cancel()
        await asyncio.wait([task])
        raise TimeoutError

    ours = SimpleNamespace(**{**vars(asyncio), "wait_for": wait_until_begun})
    monkeypatch.setattr(listing_of_servers, "asyncio", ours)
    monkeypatch.setattr(listing_of_servers, "MAX_TOOLS", 1 << 60)

    def slow() -> Iterator[Any]:
        begun.set()
        for one in endless():
            try:
                steps.count_steps(steps.TURN_STEPS + 1)
            except steps.WorkStopped:
                ended.set()
                raise
            yield one

    view = within(view_of(ServerSet([Passing("much", slow), ModuleServer("one", {"a": lambda: 1})]), imports("much")))
    assert view.names() == ("one.a",)
    assert ended.wait(60)


def test_paths_are_of_the_servers_in_their_order():
    given = ["b c", "B-C", "a", "b c"]
    servers = ServerSet([ModuleServer(one, {"t": lambda: 1}) for one in given])
    assert servers.get_or_build_catalog().names() == ("b-c.t", "b-c--2.t", "a.t", "b-c--3.t")
    found = [servers.find(one) for one in ("b-c--2", "B-C", "b-c", "nothing")]
    assert [one and one.path for one in found] == ["b-c--2", "b-c--2", "b-c", None]


def test_static_servers_have_one_catalog_for_all_runs():
    servers = ServerSet([ModuleServer("one", {"a": lambda: 1})])
    assert servers.is_static
    assert servers.get_or_build_catalog() is servers.get_or_build_catalog()
    assert servers.get_or_build_catalog().prepare_for_program(imports("one"), None) is None
    assert servers.get_or_build_catalog().for_invocation({}) is servers.get_or_build_catalog()


def test_runs_share_their_tools_until_a_server_changes_or_adds_a_note():
    async def main() -> None:
        one = Live("one", "a")
        servers = ServerSet([one])
        first, second = await view_of(servers, imports("one")), await view_of(servers, imports("one"))
        assert first.shared_tools is second.shared_tools is servers.get_or_build_catalog()
        one.change("b")
        third = await view_of(servers, imports("one"))
        assert third.shared_tools is not first.shared_tools
        one.notes = ("its tools were approved long ago",)
        assert (await view_of(servers, imports("one"))).shared_tools is None

    within(main())


def test_refresh_lists_anew():
    async def main() -> None:
        one = Live("one", "a")
        tool = create_modules_tool([one, ModuleServer("two", {"b": lambda: 1})])
        assert "export function a(" not in tool.declarations()
        await tool.refresh()
        assert "export function a(" in tool.declarations("one")
        one.given = ("z",)  # of the same revision
        await tool.refresh()
        assert "export function z(" in tool.declarations()
        assert one.listings == 2

    within(main())


def test_a_listing_that_gives_the_same_tools_is_no_change():
    async def main() -> None:
        servers = ServerSet([Live("one", "a")])
        view = await view_of(servers, imports("one"))
        await servers.refresh()
        assert view.diagnose_tool_changes() == []
        assert RunCatalog(servers).prepare_for_program(imports("one"), None) is None  # there is nothing to do

    within(main())


def test_a_server_may_say_who_it_is_only_once_it_is_connected():
    class Connecting(Live):
        name = version = None

        async def tools(self) -> dict[str, Any]:
            self.name, self.version, self.capabilities = "The One", "1.2", ["tools"]
            return await super().tools()

    for server in (Connecting("one", "a"), ModuleServer("one", Connecting("inner", "a"))):
        view = within(view_of(ServerSet([server]), imports("one")))
        listed = view.catalog.servers[0]
        assert (listed.version, listed.capabilities, listed.path) == ("1.2", ("tools",), "one")


def test_a_resume_has_the_tools_of_now_and_says_so():
    async def main() -> None:
        one, two = Live("one", "a"), Live("two", "b")
        servers = ServerSet([one, two])
        began = await view_of(servers, imports("one"))
        given = {**began.build_invocation_data(imports("one")), "limits": {"timeout_ms": 5}, "capabilities": ["one"]}
        same = await view_of(ServerSet([Live("one", "a")]), None, given)
        assert (same.notes, same.capabilities) == ([], ["one"])
        assert same.limits is not None
        assert same.limits.timeout_ms == 5
        other = await view_of(ServerSet([Live("one", "a", "b")]), None, given)
        assert [note["code"] for note in other.notes] == ["TOOLS_CHANGED"]
        gone = await view_of(ServerSet([]), None, given)
        assert [note["severity"] for note in gone.notes] == ["info"]

    within(main())


@each_row(
    "make, said",
    [
        (lambda: ModuleServer("", {}), "server_id"),
        (lambda: ModuleServer("x" * 300, {}), "server_id"),
        (lambda: ModuleServer(5, {}), "server_id"),  # pyright: ignore[reportArgumentType]
        (lambda: ModuleServer("a", 5), "tools"),
        (lambda: ModuleServer("a", {"x": 5}), "Expected a Tool"),
        (lambda: ModuleServer("a", {}, name=5), "name"),  # pyright: ignore[reportArgumentType]
        (lambda: ModuleServer("a", {}, capabilities="tools"), "capabilities"),
        (lambda: create_modules_tool({"a": {}}), "servers"),
        (lambda: create_modules_tool([{}]), "expected a ModuleServer"),
        (lambda: create_modules_tool([], settings={"fetch_policy": {}}), "fetch_policy"),
        (lambda: create_modules_tool([], {"limit": {}}), "limit"),
        (lambda: create_modules_tool([]).declarations("x"), "no server 'x'"),
    ],
)
def test_what_is_no_server_is_refused(make: Callable[[], Any], said: str):
    with pytest.raises(ValueError, match=said):
        make()


@given(st.lists(st.text(min_size=1, max_size=5), max_size=5))
def test_any_ids_make_servers(server_ids: list[str]):
    servers = ServerSet([ModuleServer(one, {"t": lambda: 1}) for one in server_ids])
    assert len(servers.get_or_build_catalog().names()) == len(server_ids)
