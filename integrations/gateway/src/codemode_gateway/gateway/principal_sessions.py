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

from codemode.host.cancellation import shield_to_end
from codemode.host.threads import run_off_loop

from ..config.model import GatewayConfig, ServerConfig
from ..config.redaction import SecretRedactor
from ..passthrough.proxy import PassthroughProxy
from .options import ClientProfile
from .principals import Principal, SharingScope, sharing_scope_of

if TYPE_CHECKING:
    from codemode.surfaces.modules.run_tool import RunTool


# A new configuration keeps the connections of servers that it does not change.

Connect = Callable[[GatewayConfig, SharingScope], AbstractAsyncContextManager[Any]]


@dataclass(eq=False)
class SharedConnection:
    """One connected server: ``connected`` is what `connect` gives for it alone, once ``open`` has returned."""

    server: ServerConfig
    scope: SharingScope
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


class ConnectedServers:
    """The servers of one seat, in the order of the configuration: as what `connect` gives for all of them."""

    def __init__(self, connections: Sequence[SharedConnection]) -> None:
        self.connections = tuple(connections)
        self._servers: tuple[Any, ...] = tuple(server for connection in connections for server in connection.connected)
        self._upstreams: tuple[Any, ...] = tuple(
            server for connection in connections for server in connection.connected.upstreams
        )

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._servers)

    def __getitem__(self, index: int) -> Any:
        return self._servers[index]

    @property
    def upstreams(self) -> tuple[Any, ...]:
        """The upstreams of all servers."""
        return self._upstreams

    def upstream(self, name: str) -> Any:
        """Return the upstream of this name. Raises `KeyError`."""
        for upstream in self._upstreams:
            if upstream.config.name == name:
                return upstream
        raise KeyError(name)


class ConnectionPool:
    """All connections of one gateway. Used on one event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: list[SharedConnection] = []
        self._lock = asyncio.Lock()

    async def acquire(self, config: GatewayConfig, principal: Principal) -> ConnectedServers:
        """Return the servers of ``config`` for one principal, connecting those that are not. Give them back."""
        async with self._lock:
            connections = [
                self._find_or_create(server, sharing_scope_of(server, principal)) for server in config.servers
            ]
            new = [connection for connection in connections if connection.connected is None]
            single_configs = [
                GatewayConfig((connection.server,), config.settings, path=config.path) for connection in new
            ]
            await asyncio.gather(
                *(
                    connection.open(self._connect(single_config, connection.scope))
                    for connection, single_config in zip(new, single_configs, strict=True)
                )
            )
            for connection in connections:
                connection.users += 1
            self._open += new
            return ConnectedServers(connections)

    async def release(self, connected: ConnectedServers) -> None:
        """End those that nobody else uses, whoever is cancelled meanwhile."""
        for connection in connected.connections:
            connection.users -= 1
        unused = [connection for connection in connected.connections if not connection.users]
        self._open = [connection for connection in self._open if connection not in unused]
        if unused:
            await shield_to_end(_close_all(unused))

    def _find_or_create(self, server: ServerConfig, scope: SharingScope) -> SharedConnection:
        matches = (connection for connection in self._open if connection.scope == scope and connection.server == server)
        return next(matches, None) or SharedConnection(server, scope)


async def _close_all(connections: Sequence[SharedConnection]) -> None:
    await asyncio.gather(*(connection.close() for connection in connections))


class WorkspaceFactory(Protocol):
    """What puts together the parts of a seat."""

    @property
    def secrets(self) -> SecretRedactor: ...
    def create_run_tool(self, config: GatewayConfig, connected: ConnectedServers, principal: Principal) -> RunTool: ...
    def create_approval_flow(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any: ...


class RunEnvironment:
    """The servers of one configuration and the tool over them. Given back when it is replaced and no run has it.

    ``asking_for`` gives how a person is asked, for each session on its own: what is allowed for one is not for others.
    """

    def __init__(
        self,
        config: GatewayConfig,
        connected: ConnectedServers,
        run_tool: RunTool,
        create_approval_flow: Callable[[RunTool, GatewayConfig, Principal], Any],
    ) -> None:
        self.config = config
        self.connected = connected
        self.run_tool = run_tool
        self.active_runs = 0
        self.is_replaced = False
        self.listing_task: asyncio.Task[None] | None = None
        """Lists the servers that no cache knows, once: programs that import one later list it again."""
        self.listing_deadline = 0.0
        """Until when, on the loop's clock, somebody waits for that."""
        self._create_approval_flow = create_approval_flow
        self._approval_flows: dict[Principal, Any] = {}

    def startup_status(self) -> str | None:
        """Return which server is starting, as a client is told while a program waits; None where none is."""
        name = next(
            (upstream.config.name for upstream in self.connected.upstreams if upstream.state == "starting"), None
        )
        return None if name is None else f"waiting for the server {name!r} to start"

    def approval_flow_for(self, caller: Principal) -> Any:
        """Return the `Asking` of one caller."""
        return self._approval_flows.get(caller) or self._approval_flows.setdefault(
            caller, self._create_approval_flow(self.run_tool, self.config, caller)
        )

    def remove_approval_flow(self, caller: Principal) -> Any:
        """Return the `Asking` of a session that is over, if it has one, to be closed."""
        return self._approval_flows.pop(caller, None)

    async def aclose(self) -> None:
        """Claim nothing more of what people decide in the store, and wait for what runs of it."""
        if self.listing_task is not None:
            self.listing_task.cancel()
            await asyncio.wait([self.listing_task])
        await asyncio.gather(*(approval_flow.aclose() for approval_flow in self._approval_flows.values()))


def merge_annotations(tools: Iterable[Any], *, is_complete: bool) -> types.ToolAnnotations:
    """Return the annotations of a tool through which those in ``listed`` can be reached, the SDK's ``Tool``s.

    What is missing is what the protocol says of it: a tool that says nothing writes, destroys, is not idempotent and
    reaches beyond. So does one that nobody has listed yet, where the list is not ``is_complete``.
    """
    annotations = [hints.annotations or types.ToolAnnotations() for hints in tools]
    read_only = is_complete and all(hints.read_only_hint is True for hints in annotations)
    destructive = not is_complete or any(
        hints.read_only_hint is not True and hints.destructive_hint is not False for hints in annotations
    )
    idempotent = is_complete and all(
        hints.read_only_hint is True or hints.idempotent_hint is True for hints in annotations
    )
    open_world = not is_complete or any(hints.open_world_hint is not False for hints in annotations)
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

_RESUME_DESCRIPTION = "The id of a waiting answer, in place of code: gives what has come of that program."


async def create_client_tool(environment: RunEnvironment, profile: ClientProfile) -> types.Tool:
    """Return the tool for one client, of the servers as they were last listed."""
    run_tool = environment.run_tool
    # Putting thousands of declarations together takes some time.
    description = await run_off_loop(partial(run_tool.describe, profile.description_characters))
    upstreams = environment.connected.upstreams
    annotations = merge_annotations(
        (tool for upstream in upstreams for tool in upstream.listed_tools),
        is_complete=bool(upstreams) and all(upstream.listed_tools for upstream in upstreams),
    )
    return types.Tool(
        name=profile.tool_name,
        title="Run a program over MCP servers",
        description=description,
        input_schema=create_input_schema(run_tool.input_schema),
        annotations=annotations,
    )


def create_input_schema(run_schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call: that of a run, or the id of one that waits."""
    properties = {**run_schema["properties"], "resume": {"type": "string", "description": _RESUME_DESCRIPTION}}
    return {"type": "object", "properties": properties}


LISTING_TIMEOUT_SECONDS = 5.0


class Workspace:
    """One principal at a gateway. ``connected``, ``run_tool`` and ``asking`` are those of the next run.

    A run has those with which it began, whatever changes meanwhile. ``passed`` is what is passed through of the servers
    beside their tools; ``runs`` is how many programs run.
    """

    def __init__(self, principal: Principal, connections: ConnectionPool, factory: WorkspaceFactory) -> None:
        self.principal = principal
        self.active_runs = 0
        self.passthrough = PassthroughProxy(
            lambda: self._require_environment.connected.upstreams,
            hide=factory.secrets.redact_text,
            hide_in=factory.secrets.redact_off_loop,
        )
        self._connections = connections
        self._factory = factory
        self._environment: RunEnvironment | None = None
        self._lock = asyncio.Lock()
        self._cleanup_tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Workspace of {self.principal.id!r}>"

    @property
    def connected(self) -> ConnectedServers:
        """The servers, as what `connect` gives."""
        return self._require_environment.connected

    @property
    def run_tool(self) -> RunTool:
        """The tool over them."""
        return self._require_environment.run_tool

    @property
    def approval_flow(self) -> Any:
        """How the principal is asked about inner calls."""
        return self._require_environment.approval_flow_for(self.principal)

    @property
    def config(self) -> GatewayConfig:
        """The configuration of the next run."""
        return self._require_environment.config

    @property
    def _require_environment(self) -> RunEnvironment:
        if self._environment is None:
            raise RuntimeError("the seat is not taken, or was closed")
        return self._environment

    async def apply_config(self, config: GatewayConfig) -> None:
        """Have the servers of a configuration from the next run on."""
        async with self._lock:
            previous = self._environment
            if previous is not None and previous.config is config:
                return
            connected = await self._connections.acquire(config, self.principal)
            run_tool = self._factory.create_run_tool(config, connected, self.principal)
            self._environment = RunEnvironment(config, connected, run_tool, self._factory.create_approval_flow)
        if previous is not None:
            previous.is_replaced = True
            if not previous.active_runs:
                self._start_cleanup(self._release(previous))
            self.notify_tools_changed()

    @asynccontextmanager
    async def use_environment(self, environment: RunEnvironment | None = None) -> AsyncGenerator[RunEnvironment]:
        """Have servers, tool and asking of one run until it ends: the current ones, or those of a run that goes on."""
        environment = environment or self._require_environment
        environment.active_runs += 1
        self.active_runs += 1
        try:
            yield environment
        finally:
            environment.active_runs -= 1
            self.active_runs -= 1
            if environment.is_replaced and not environment.active_runs:
                self._start_cleanup(self._release(environment))

    async def get_tool(self, profile: ClientProfile) -> types.Tool:
        """Return the tool as a client is shown it, with what is known of servers that answer in time."""
        async with self.use_environment() as environment:
            upstreams = environment.connected.upstreams
            # What a cache knows is there at once; whoever must be asked first is waited for, but not for long.
            await environment.run_tool.prepare([upstream.server_id for upstream in upstreams if upstream.listed_tools])
            if not all(upstream.listed_tools for upstream in upstreams):
                await self._wait_for_listing(environment)
            return await create_client_tool(environment, profile)

    async def handle_notification(self, server: ServerConfig, notification: Any) -> None:
        """Pass on what a server says by itself; other tools of it are another description of the one tool."""
        import mcp_types as types

        if isinstance(notification, types.ToolListChangedNotification):
            self.notify_tools_changed()
        await self.passthrough.on_notification(server, notification)

    def notify_tools_changed(self) -> None:
        """Tell the clients who have listed it that the tool says something else of itself."""
        from mcp.shared.subscriptions import ToolsListChanged

        self.passthrough.subscriptions.notify_list_changed(ToolsListChanged())

    def forget_session(self, caller: Principal) -> None:
        """Let nothing of a session that is over be remembered."""
        approval_flow = None if self._environment is None else self._environment.remove_approval_flow(caller)
        if approval_flow is not None:
            self._start_cleanup(approval_flow.aclose())

    async def aclose(self) -> None:
        """Give everything back. Programs that still run lose their servers."""
        previous, self._environment = self._environment, None
        await self.passthrough.aclose()
        if previous is not None:
            self._start_cleanup(self._release(previous))
        if self._cleanup_tasks:
            await shield_to_end(asyncio.wait([*self._cleanup_tasks]))

    async def _wait_for_listing(self, environment: RunEnvironment) -> None:
        now = asyncio.get_running_loop().time()
        if environment.listing_task is None:
            environment.listing_task = asyncio.create_task(self._list_servers(environment))
            environment.listing_deadline = now + LISTING_TIMEOUT_SECONDS
        if now < environment.listing_deadline:
            await asyncio.wait([environment.listing_task], timeout=environment.listing_deadline - now)

    async def _list_servers(self, environment: RunEnvironment) -> None:
        await environment.run_tool.prepare()
        if asyncio.get_running_loop().time() >= environment.listing_deadline:  # it may itself have begun late
            self.notify_tools_changed()  # whoever has asked was answered without them

    async def _release(self, environment: RunEnvironment) -> None:
        await environment.aclose()
        await self._connections.release(environment.connected)

    def _start_cleanup(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._cleanup_tasks.add(task)
        task.add_done_callback(self._cleanup_tasks.discard)


MAX_WORKSPACES = 256


class Workspaces:
    """Makes seats when somebody comes, and takes those back that were idle longest when there are too many.

    A seat is one user's; it is one session's only where some server is connected for each session.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        factory: WorkspaceFactory,
        get_config: Callable[[], GatewayConfig],
        max_workspaces: int = MAX_WORKSPACES,
    ) -> None:
        self._connections = connections
        self._factory = factory
        self._get_config = get_config
        self._max_workspaces = max_workspaces
        self._workspaces: OrderedDict[Principal, Workspace] = OrderedDict()
        self._creating: dict[Principal, asyncio.Task[Workspace]] = {}

    def __len__(self) -> int:
        return len(self._workspaces)

    async def get(self, caller: Principal) -> Workspace:
        """Return the seat of whoever calls."""
        principal = self._workspace_principal(caller)
        workspace = self._workspaces.get(principal)
        if workspace is not None:
            self._workspaces.move_to_end(principal)
            return workspace
        creating = self._creating.get(principal)
        if creating is None:
            creating = self._creating[principal] = asyncio.create_task(self._create(principal))
            creating.add_done_callback(lambda _: self._creating.pop(principal, None))
        # Who comes meanwhile waits for the same one, and nobody's leaving ends it.
        return await asyncio.shield(creating)

    async def apply_config(self, config: GatewayConfig) -> None:
        """Let every seat have another configuration."""
        await asyncio.gather(*(workspace.apply_config(config) for workspace in [*self._workspaces.values()]))

    def in_scope(self, scope: SharingScope) -> list[Workspace]:
        """Return the seats of those who share a connection."""
        return [workspace for principal, workspace in self._workspaces.items() if scope.includes(principal)]

    async def end_session(self, caller: Principal) -> None:
        """Forget a session that is over, and take back its seat where it has one of its own and no program runs."""
        principal = self._workspace_principal(caller)
        workspace = self._workspaces.get(principal)
        if workspace is None:
            return
        workspace.forget_session(caller)
        if principal == caller and not workspace.active_runs:
            del self._workspaces[principal]
            await workspace.aclose()

    async def aclose(self) -> None:
        """Take all back."""
        if self._creating:
            await asyncio.wait([*self._creating.values()])
        workspaces, self._workspaces = [*self._workspaces.values()], OrderedDict()
        await asyncio.gather(*(workspace.aclose() for workspace in workspaces))

    def _workspace_principal(self, caller: Principal) -> Principal:
        return caller if self._get_config().has_session_servers else Principal(caller.id)

    async def _create(self, principal: Principal) -> Workspace:
        workspace = Workspace(principal, self._connections, self._factory)
        config = self._get_config()
        await workspace.apply_config(config)
        while (config := self._get_config()) is not workspace.config:  # which has changed meanwhile
            await workspace.apply_config(config)
        self._workspaces[principal] = workspace
        while (
            len(self._workspaces) > self._max_workspaces and (evicted := self._choose_eviction(principal)) is not None
        ):
            await self._workspaces.pop(evicted).aclose()
        return workspace

    def _choose_eviction(self, principal: Principal) -> Principal | None:
        """Return whose seat goes for this one: idle longest, of the users with most. So nobody drives others out."""
        counts = Counter(candidate.id for candidate in self._workspaces)
        idle = [
            principal_to_evict
            for principal_to_evict, candidate in self._workspaces.items()
            if not candidate.active_runs and principal_to_evict != principal
        ]
        return max(idle, key=lambda candidate: counts[candidate.id], default=None)
