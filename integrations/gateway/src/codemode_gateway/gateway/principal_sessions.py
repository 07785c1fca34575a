"""What each principal has open: connections, servers and the tool over them, for each configuration."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as types

from codemode.host.cancellation import to_its_end
from codemode.host.threads import off_loop

from ..config.model import GatewayConfig, ServerConfig
from ..config.redaction import Secrets
from ..passthrough.proxy import Passed
from .options import Announced
from .principals import Principal, Scope, scope_of

if TYPE_CHECKING:
    from codemode.surfaces.modules.run_tool import RunTool


# A new configuration keeps the connections of servers that it does not change.

Connect = Callable[[GatewayConfig, Scope], AbstractAsyncContextManager[Any]]


@dataclass(eq=False)
class Connection:
    """One connected server: ``connected`` is what `connect` gives for it alone, once ``open`` has returned."""

    server: ServerConfig
    scope: Scope
    users: int = 0
    connected: Any = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def open(self, connect: AbstractAsyncContextManager[Any]) -> None:
        """Enter ``connect`` in a task of its own, which also leaves it."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(connect, opened))
        self.connected = await asyncio.shield(opened)

    async def _hold(self, connect: AbstractAsyncContextManager[Any], opened: asyncio.Future[Any]) -> None:
        try:
            async with connect as connected:
                opened.set_result(connected)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def close(self) -> None:
        """End the connection."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])


class Connected:
    """The servers of one seat, in the order of the configuration: as what `connect` gives for all of them."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)
        self._servers: tuple[Any, ...] = tuple(one for each in connections for one in each.connected)
        self._upstreams: tuple[Any, ...] = tuple(one for each in connections for one in each.connected.upstreams)

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._servers)

    def __getitem__(self, at: int) -> Any:
        return self._servers[at]

    @property
    def upstreams(self) -> tuple[Any, ...]:
        """The upstreams of all servers."""
        return self._upstreams

    def upstream(self, name: str) -> Any:
        """Return the upstream of this name. Raises `KeyError`."""
        for one in self._upstreams:
            if one.config.name == name:
                return one
        raise KeyError(name)


class Connections:
    """All connections of one gateway. Used on one event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: list[Connection] = []
        self._lock = asyncio.Lock()

    async def taken(self, config: GatewayConfig, principal: Principal) -> Connected:
        """Return the servers of ``config`` for one principal, connecting those that are not. Give them back."""
        async with self._lock:
            taken = [self._one(server, scope_of(server, principal)) for server in config.servers]
            new = [one for one in taken if one.connected is None]
            alone = [GatewayConfig((one.server,), config.settings, path=config.path) for one in new]
            await asyncio.gather(*(one.open(self._connect(of, one.scope)) for one, of in zip(new, alone, strict=True)))
            for one in taken:
                one.users += 1
            self._open += new
            return Connected(taken)

    async def give_back(self, connected: Connected) -> None:
        """End those that nobody else uses, whoever is cancelled meanwhile."""
        for one in connected.connections:
            one.users -= 1
        unused = [one for one in connected.connections if not one.users]
        self._open = [one for one in self._open if one not in unused]
        if unused:
            await to_its_end(_closed(unused))

    def _one(self, server: ServerConfig, scope: Scope) -> Connection:
        known = (one for one in self._open if one.scope == scope and one.server == server)
        return next(known, None) or Connection(server, scope)


async def _closed(connections: Sequence[Connection]) -> None:
    await asyncio.gather(*(one.close() for one in connections))


class Wired(Protocol):
    """What puts together the parts of a seat."""

    @property
    def secrets(self) -> Secrets: ...
    def run_tool(self, config: GatewayConfig, connected: Connected, principal: Principal) -> RunTool: ...
    def asking(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any: ...


class Outfit:
    """The servers of one configuration and the tool over them. Given back when it is replaced and no run has it.

    ``asking_for`` gives how a person is asked, for each session on its own: what is allowed for one is not for others.
    """

    def __init__(
        self,
        config: GatewayConfig,
        connected: Connected,
        run_tool: RunTool,
        made: Callable[[RunTool, GatewayConfig, Principal], Any],
    ) -> None:
        self.config = config
        self.connected = connected
        self.run_tool = run_tool
        self.users = 0
        self.is_replaced = False
        self.listing: asyncio.Task[None] | None = None
        """Lists the servers that no cache knows, once: programs that import one later list it again."""
        self.listed_by = 0.0
        """Until when, on the loop's clock, somebody waits for that."""
        self._made = made
        self._asking: dict[Principal, Any] = {}

    def waited_for(self) -> str | None:
        """Return which server is starting, as a client is told while a program waits; None where none is."""
        name = next((one.config.name for one in self.connected.upstreams if one.state == "starting"), None)
        return None if name is None else f"waiting for the server {name!r} to start"

    def asking_for(self, caller: Principal) -> Any:
        """Return the `Asking` of one caller."""
        return self._asking.get(caller) or self._asking.setdefault(
            caller, self._made(self.run_tool, self.config, caller)
        )

    def forget(self, caller: Principal) -> Any:
        """Return the `Asking` of a session that is over, if it has one, to be closed."""
        return self._asking.pop(caller, None)

    async def aclose(self) -> None:
        """Claim nothing more of what people decide in the store, and wait for what runs of it."""
        if self.listing is not None:
            self.listing.cancel()
            await asyncio.wait([self.listing])
        await asyncio.gather(*(one.aclose() for one in self._asking.values()))


def union_of(listed: Iterable[Any], *, is_complete: bool) -> types.ToolAnnotations:
    """Return the annotations of a tool through which those in ``listed`` can be reached, the SDK's ``Tool``s.

    What is missing is what the protocol says of it: a tool that says nothing writes, destroys, is not idempotent and
    reaches beyond. So does one that nobody has listed yet, where the list is not ``is_complete``.
    """
    said = [one.annotations or types.ToolAnnotations() for one in listed]
    read_only = is_complete and all(one.read_only_hint is True for one in said)
    destructive = not is_complete or any(
        one.read_only_hint is not True and one.destructive_hint is not False for one in said
    )
    idempotent = is_complete and all(one.read_only_hint is True or one.idempotent_hint is True for one in said)
    open_world = not is_complete or any(one.open_world_hint is not False for one in said)
    return types.ToolAnnotations(
        title="Run a program",
        read_only_hint=read_only,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=open_world,
    )


INSTRUCTIONS = (
    "codemode runs one program over all MCP servers of this user: send codemode_run a JavaScript or TypeScript module"
    " that imports servers, calls their tools, and gives back the little that you need. Look tools up in the program,"
    " with searchTools of @codemode/discovery, before you call them. Where an answer says that calls wait for a person,"
    " tell the user, and send its id as resume later."
)

_RESUME = "The id of a waiting answer, in place of code: gives what has come of that program."


async def tool_shown(outfit: Outfit, known: Announced) -> types.Tool:
    """Return the tool for one client, of the servers as they were last listed."""
    run_tool = outfit.run_tool
    # Putting thousands of declarations together takes some time.
    description = await off_loop(partial(run_tool.describe, known.description_characters))
    upstreams = outfit.connected.upstreams
    annotations = union_of(
        (tool for one in upstreams for tool in one.listed),
        is_complete=bool(upstreams) and all(one.listed for one in upstreams),
    )
    return types.Tool(
        name=known.tool_name,
        title="Run a program over MCP servers",
        description=description,
        input_schema=input_schema(run_tool.input_schema),
        annotations=annotations,
    )


def input_schema(of_run: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call: that of a run, or the id of one that waits."""
    properties = {**of_run["properties"], "resume": {"type": "string", "description": _RESUME}}
    return {"type": "object", "properties": properties}


LISTING_SECONDS = 5.0


class Seat:
    """One principal at a gateway. ``connected``, ``run_tool`` and ``asking`` are those of the next run.

    A run has those with which it began, whatever changes meanwhile. ``passed`` is what is passed through of the servers
    beside their tools; ``runs`` is how many programs run.
    """

    def __init__(self, principal: Principal, connections: Connections, wiring: Wired) -> None:
        self.principal = principal
        self.runs = 0
        self.passed = Passed(
            lambda: self._current.connected.upstreams, hide=wiring.secrets.text, hide_in=wiring.secrets.off_loop
        )
        self._connections = connections
        self._wiring = wiring
        self._outfit: Outfit | None = None
        self._lock = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Seat of {self.principal.id!r}>"

    @property
    def connected(self) -> Connected:
        """The servers, as what `connect` gives."""
        return self._current.connected

    @property
    def run_tool(self) -> RunTool:
        """The tool over them."""
        return self._current.run_tool

    @property
    def asking(self) -> Any:
        """How the principal is asked about inner calls."""
        return self._current.asking_for(self.principal)

    @property
    def config(self) -> GatewayConfig:
        """The configuration of the next run."""
        return self._current.config

    @property
    def _current(self) -> Outfit:
        if self._outfit is None:
            raise RuntimeError("the seat is not taken, or was closed")
        return self._outfit

    async def take(self, config: GatewayConfig) -> None:
        """Have the servers of a configuration from the next run on."""
        async with self._lock:
            old = self._outfit
            if old is not None and old.config is config:
                return
            connected = await self._connections.taken(config, self.principal)
            run_tool = self._wiring.run_tool(config, connected, self.principal)
            self._outfit = Outfit(config, connected, run_tool, self._wiring.asking)
        if old is not None:
            old.is_replaced = True
            if not old.users:
                self._spawn(self._given_back(old))
            self.tools_changed()

    @asynccontextmanager
    async def run(self, outfit: Outfit | None = None) -> AsyncGenerator[Outfit]:
        """Have servers, tool and asking of one run until it ends: the current ones, or those of a run that goes on."""
        outfit = outfit or self._current
        outfit.users += 1
        self.runs += 1
        try:
            yield outfit
        finally:
            outfit.users -= 1
            self.runs -= 1
            if outfit.is_replaced and not outfit.users:
                self._spawn(self._given_back(outfit))

    async def shown(self, known: Announced) -> types.Tool:
        """Return the tool as a client is shown it, with what is known of servers that answer in time."""
        async with self.run() as outfit:
            upstreams = outfit.connected.upstreams
            # What a cache knows is there at once; whoever must be asked first is waited for, but not for long.
            await outfit.run_tool.prepare([one.server_id for one in upstreams if one.listed])
            if not all(one.listed for one in upstreams):
                await self._asked(outfit)
            return await tool_shown(outfit, known)

    async def notified(self, server: ServerConfig, notification: Any) -> None:
        """Pass on what a server says by itself; other tools of it are another description of the one tool."""
        import mcp_types as types

        if isinstance(notification, types.ToolListChangedNotification):
            self.tools_changed()
        await self.passed.notified(server, notification)

    def tools_changed(self) -> None:
        """Tell the clients who have listed it that the tool says something else of itself."""
        from mcp.shared.subscriptions import ToolsListChanged

        self.passed.watching.list_changed(ToolsListChanged())

    def forget(self, caller: Principal) -> None:
        """Let nothing of a session that is over be remembered."""
        asking = None if self._outfit is None else self._outfit.forget(caller)
        if asking is not None:
            self._spawn(asking.aclose())

    async def aclose(self) -> None:
        """Give everything back. Programs that still run lose their servers."""
        old, self._outfit = self._outfit, None
        await self.passed.aclose()
        if old is not None:
            self._spawn(self._given_back(old))
        if self._ending:
            await to_its_end(asyncio.wait([*self._ending]))

    async def _asked(self, outfit: Outfit) -> None:
        now = asyncio.get_running_loop().time()
        if outfit.listing is None:
            outfit.listing = asyncio.create_task(self._listed(outfit))
            outfit.listed_by = now + LISTING_SECONDS
        if now < outfit.listed_by:
            await asyncio.wait([outfit.listing], timeout=outfit.listed_by - now)

    async def _listed(self, outfit: Outfit) -> None:
        await outfit.run_tool.prepare()
        if asyncio.get_running_loop().time() >= outfit.listed_by:  # it may itself have begun late
            self.tools_changed()  # whoever has asked was answered without them

    async def _given_back(self, outfit: Outfit) -> None:
        await outfit.aclose()
        await self._connections.give_back(outfit.connected)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


MOST_SEATS = 256


class Seats:
    """Makes seats when somebody comes, and takes those back that were idle longest when there are too many.

    A seat is one user's; it is one session's only where some server is connected for each session.
    """

    def __init__(
        self, connections: Connections, wiring: Wired, config: Callable[[], GatewayConfig], most: int = MOST_SEATS
    ) -> None:
        self._connections = connections
        self._wiring = wiring
        self._config = config
        self._most = most
        self._seats: OrderedDict[Principal, Seat] = OrderedDict()
        self._making: dict[Principal, asyncio.Task[Seat]] = {}

    def __len__(self) -> int:
        return len(self._seats)

    async def of(self, caller: Principal) -> Seat:
        """Return the seat of whoever calls."""
        principal = self._principal(caller)
        seat = self._seats.get(principal)
        if seat is not None:
            self._seats.move_to_end(principal)
            return seat
        making = self._making.get(principal)
        if making is None:
            making = self._making[principal] = asyncio.create_task(self._made(principal))
            making.add_done_callback(lambda _: self._making.pop(principal, None))
        # Who comes meanwhile waits for the same one, and nobody's leaving ends it.
        return await asyncio.shield(making)

    async def take(self, config: GatewayConfig) -> None:
        """Let every seat have another configuration."""
        await asyncio.gather(*(one.take(config) for one in [*self._seats.values()]))

    def within(self, scope: Scope) -> list[Seat]:
        """Return the seats of those who share a connection."""
        return [seat for principal, seat in self._seats.items() if scope.includes(principal)]

    async def left(self, caller: Principal) -> None:
        """Forget a session that is over, and take back its seat where it has one of its own and no program runs."""
        principal = self._principal(caller)
        seat = self._seats.get(principal)
        if seat is None:
            return
        seat.forget(caller)
        if principal == caller and not seat.runs:
            del self._seats[principal]
            await seat.aclose()

    async def aclose(self) -> None:
        """Take all back."""
        if self._making:
            await asyncio.wait([*self._making.values()])
        seats, self._seats = [*self._seats.values()], OrderedDict()
        await asyncio.gather(*(one.aclose() for one in seats))

    def _principal(self, caller: Principal) -> Principal:
        return caller if self._config().has_session_servers else Principal(caller.id)

    async def _made(self, principal: Principal) -> Seat:
        seat = Seat(principal, self._connections, self._wiring)
        config = self._config()
        await seat.take(config)
        while (config := self._config()) is not seat.config:  # which has changed meanwhile
            await seat.take(config)
        self._seats[principal] = seat
        while len(self._seats) > self._most and (other := self._in_the_way(principal)) is not None:
            await self._seats.pop(other).aclose()
        return seat

    def _in_the_way(self, principal: Principal) -> Principal | None:
        """Return whose seat goes for this one: idle longest, of the users with most. So nobody drives others out."""
        most = Counter(one.id for one in self._seats)
        idle = [other for other, one in self._seats.items() if not one.runs and other != principal]
        return max(idle, key=lambda one: most[one.id], default=None)
