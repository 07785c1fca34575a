"""Manage the connections, servers and run tool of each principal."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as types

from codemode.host.cancellation import shield_until_done
from codemode.host.threads import run_in_single_use_thread

from ..config.model import GatewayConfig, ServerConfig
from ..config.redaction import SecretRedactor
from ..passthrough.proxy import PassthroughProxy
from .options import ClientProfile
from .principals import Principal, SharingScope, get_sharing_scope

if TYPE_CHECKING:
    from codemode.surfaces.modules.run_tool import RunTool


# A new configuration keeps the connections of servers that it does not change.

Connect = Callable[[GatewayConfig, SharingScope], AbstractAsyncContextManager[Any]]


@dataclass(eq=False)
class SharedConnection:
    """One connected server. ``connected`` is set once ``open`` has returned."""

    server: ServerConfig
    scope: SharingScope
    users: int = 0
    connected: Any = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def open(self, connect: AbstractAsyncContextManager[Any]) -> None:
        """Enter ``connect`` in a separate task, which also leaves it."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_connection_open(connect, opened))
        self.connected = await asyncio.shield(opened)

    async def _hold_connection_open(
        self, connect: AbstractAsyncContextManager[Any], opened: asyncio.Future[Any]
    ) -> None:
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
    """The servers of one workspace, in configuration order."""

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
        """Return the servers of ``config`` for a principal, connecting new ones. Call `release` afterwards."""
        async with self._lock:
            connections = [
                self._find_or_create_connection(server, get_sharing_scope(server, principal))
                for server in config.servers
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
        """Close connections without other users, also if the caller is cancelled."""
        for connection in connected.connections:
            connection.users -= 1
        unused = [connection for connection in connected.connections if not connection.users]
        self._open = [connection for connection in self._open if connection not in unused]
        if unused:
            await shield_until_done(_close_all(unused))

    def _find_or_create_connection(self, server: ServerConfig, scope: SharingScope) -> SharedConnection:
        matches = (connection for connection in self._open if connection.scope == scope and connection.server == server)
        return next(matches, None) or SharedConnection(server, scope)


async def _close_all(connections: Sequence[SharedConnection]) -> None:
    await asyncio.gather(*(connection.close() for connection in connections))


class WorkspacePartsFactory(Protocol):
    """Creates the parts of a workspace."""

    @property
    def secrets(self) -> SecretRedactor: ...
    def create_run_tool(self, config: GatewayConfig, connected: ConnectedServers, principal: Principal) -> RunTool: ...
    def create_approval_flow(self, run_tool: RunTool, config: GatewayConfig, caller: Principal) -> Any: ...


class RunEnvironment:
    """The servers of one configuration and the run tool over them, released after the last run.

    Each session has its own approval flow, so approvals for one session do not apply to others.
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
        """Lists the servers without a cached list once; programs that import one later list it again."""
        self.listing_deadline = 0.0
        """When waiting for the listing ends, on the loop's clock."""
        self._create_approval_flow = create_approval_flow
        self._approval_flows: dict[Principal, Any] = {}

    def describe_startup(self) -> str | None:
        """Return which server is starting, as a progress message, or None."""
        name = next(
            (upstream.config.name for upstream in self.connected.upstreams if upstream.state == "starting"), None
        )
        return None if name is None else f"waiting for the server {name!r} to start"

    def get_or_create_approval_flow(self, caller: Principal) -> Any:
        """Return the approval flow of a caller."""
        return self._approval_flows.get(caller) or self._approval_flows.setdefault(
            caller, self._create_approval_flow(self.run_tool, self.config, caller)
        )

    def remove_approval_flow(self, caller: Principal) -> Any:
        """Remove and return the approval flow of an ended session, if any."""
        return self._approval_flows.pop(caller, None)

    async def aclose(self) -> None:
        """Stop listing and close all approval flows."""
        if self.listing_task is not None:
            self.listing_task.cancel()
            await asyncio.wait([self.listing_task])
        await asyncio.gather(*(approval_flow.aclose() for approval_flow in self._approval_flows.values()))


def merge_annotations(tools: Iterable[Any], *, is_complete: bool) -> types.ToolAnnotations:
    """Return annotations that hold for every reachable tool.

    Missing hints take the protocol's defaults: writes, destructive, not idempotent, open world. An incomplete list also
    takes them.
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
    " that imports servers, calls their tools and returns only what you need. Look tools up in the program with"
    " searchTools of @codemode/discovery before you call them. If an answer says that calls wait for a person, tell the"
    " user and send its id as resume later."
)

_RESUME_DESCRIPTION = "The id of a waiting answer, instead of code: returns that program's outcome."


async def create_tool_definition(environment: RunEnvironment, profile: ClientProfile) -> types.Tool:
    """Return the tool definition for one client from the last tool lists."""
    run_tool = environment.run_tool
    # Joining thousands of declarations takes time.
    description = await run_in_single_use_thread(partial(run_tool.describe, profile.description_characters))
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
    """Return the input schema: that of a run, or the id of a waiting run."""
    properties = {**run_schema["properties"], "resume": {"type": "string", "description": _RESUME_DESCRIPTION}}
    return {"type": "object", "properties": properties}


LISTING_TIMEOUT_SECONDS = 5.0


class Workspace:
    """The servers, run tool and approval flow of one principal at a gateway.

    A running program keeps the environment that it started with. ``passthrough`` serves prompts and resources;
    ``active_runs`` counts running programs.
    """

    def __init__(self, principal: Principal, connections: ConnectionPool, factory: WorkspacePartsFactory) -> None:
        self.principal = principal
        self.active_runs = 0
        self.passthrough = PassthroughProxy(
            lambda: self._current_environment.connected.upstreams,
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
        """The servers of the next run."""
        return self._current_environment.connected

    @property
    def run_tool(self) -> RunTool:
        """The run tool of the next run."""
        return self._current_environment.run_tool

    @property
    def approval_flow(self) -> Any:
        """The principal's approval flow of the next run."""
        return self._current_environment.get_or_create_approval_flow(self.principal)

    @property
    def config(self) -> GatewayConfig:
        """The configuration of the next run."""
        return self._current_environment.config

    @property
    def _current_environment(self) -> RunEnvironment:
        if self._environment is None:
            raise RuntimeError("the workspace is not open")
        return self._environment

    async def apply_config(self, config: GatewayConfig) -> None:
        """Use the servers of a configuration from the next run on."""
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
                self._start_cleanup(self._release_environment(previous))
            self.notify_tools_changed()

    @asynccontextmanager
    async def use_environment(self, environment: RunEnvironment | None = None) -> AsyncGenerator[RunEnvironment]:
        """Hold an environment for one run: the current one, or that of a continued run."""
        environment = environment or self._current_environment
        environment.active_runs += 1
        self.active_runs += 1
        try:
            yield environment
        finally:
            environment.active_runs -= 1
            self.active_runs -= 1
            if environment.is_replaced and not environment.active_runs:
                self._start_cleanup(self._release_environment(environment))

    async def get_tool_after_listing(self, profile: ClientProfile) -> types.Tool:
        """Return the tool for a client, waiting briefly for servers that were never listed."""
        async with self.use_environment() as environment:
            upstreams = environment.connected.upstreams
            # Cached lists are available at once; wait briefly for the other servers.
            await environment.run_tool.prepare([upstream.server_id for upstream in upstreams if upstream.listed_tools])
            if not all(upstream.listed_tools for upstream in upstreams):
                await self._start_listing_and_wait_until_deadline(environment)
            return await create_tool_definition(environment, profile)

    async def handle_notification(self, server: ServerConfig, notification: Any) -> None:
        """Forward a server's notification; a changed tool list changes the gateway's tool."""
        import mcp_types as types

        if isinstance(notification, types.ToolListChangedNotification):
            self.notify_tools_changed()
        await self.passthrough.on_notification(server, notification)

    def notify_tools_changed(self) -> None:
        """Notify clients that the tool's description has changed."""
        from mcp.shared.subscriptions import ToolsListChanged

        self.passthrough.subscriptions.notify_list_changed(ToolsListChanged())

    def close_session_approvals(self, caller: Principal) -> None:
        """Drop the approval flow of an ended session."""
        approval_flow = None if self._environment is None else self._environment.remove_approval_flow(caller)
        if approval_flow is not None:
            self._start_cleanup(approval_flow.aclose())

    async def aclose(self) -> None:
        """Release everything. Running programs lose their servers."""
        previous, self._environment = self._environment, None
        await self.passthrough.aclose()
        if previous is not None:
            self._start_cleanup(self._release_environment(previous))
        if self._cleanup_tasks:
            await shield_until_done(asyncio.wait([*self._cleanup_tasks]))

    async def _start_listing_and_wait_until_deadline(self, environment: RunEnvironment) -> None:
        now = asyncio.get_running_loop().time()
        if environment.listing_task is None:
            environment.listing_task = asyncio.create_task(self._list_servers_and_notify_if_late(environment))
            environment.listing_deadline = now + LISTING_TIMEOUT_SECONDS
        if now < environment.listing_deadline:
            await asyncio.wait([environment.listing_task], timeout=environment.listing_deadline - now)

    async def _list_servers_and_notify_if_late(self, environment: RunEnvironment) -> None:
        await environment.run_tool.prepare()
        if asyncio.get_running_loop().time() >= environment.listing_deadline:  # also if the task started late
            self.notify_tools_changed()  # the tool was listed without these servers

    async def _release_environment(self, environment: RunEnvironment) -> None:
        await environment.aclose()
        await self._connections.release(environment.connected)

    def _start_cleanup(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._cleanup_tasks.add(task)
        task.add_done_callback(self._cleanup_tasks.discard)


MAX_WORKSPACES = 256


class Workspaces:
    """Creates workspaces on demand and closes the longest idle ones over the limit.

    A workspace belongs to one user, or to one session if some server is connected per session.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        factory: WorkspacePartsFactory,
        config: GatewayConfig,
        max_workspaces: int = MAX_WORKSPACES,
    ) -> None:
        self._connections = connections
        self._factory = factory
        self._config = config
        self._max_workspaces = max_workspaces
        self._workspaces: OrderedDict[Principal, Workspace] = OrderedDict()
        self._creating: dict[Principal, asyncio.Task[Workspace]] = {}

    def __len__(self) -> int:
        return len(self._workspaces)

    async def get_or_create(self, caller: Principal) -> Workspace:
        """Return the workspace of a caller."""
        principal = self._get_workspace_principal(caller)
        workspace = self._workspaces.get(principal)
        if workspace is not None:
            self._workspaces.move_to_end(principal)
            return workspace
        creating = self._creating.get(principal)
        if creating is None:
            creating = self._creating[principal] = asyncio.create_task(self._create_and_evict_idle(principal))
            creating.add_done_callback(lambda _: self._creating.pop(principal, None))
        # Concurrent callers share the creation; cancelling one does not stop it.
        return await asyncio.shield(creating)

    async def apply_config(self, config: GatewayConfig) -> None:
        """Apply a configuration to all workspaces, and use it for new ones."""
        self._config = config
        await asyncio.gather(*(workspace.apply_config(config) for workspace in [*self._workspaces.values()]))

    def list_in_scope(self, scope: SharingScope) -> list[Workspace]:
        """Return the workspaces that share a connection."""
        return [workspace for principal, workspace in self._workspaces.items() if scope.includes(principal)]

    async def end_session(self, caller: Principal) -> None:
        """Forget an ended session; close its workspace if it has its own and no program runs."""
        principal = self._get_workspace_principal(caller)
        workspace = self._workspaces.get(principal)
        if workspace is None:
            return
        workspace.close_session_approvals(caller)
        if principal == caller and not workspace.active_runs:
            del self._workspaces[principal]
            await workspace.aclose()

    async def aclose(self) -> None:
        """Close all workspaces."""
        if self._creating:
            await asyncio.wait([*self._creating.values()])
        workspaces, self._workspaces = [*self._workspaces.values()], OrderedDict()
        await asyncio.gather(*(workspace.aclose() for workspace in workspaces))

    def _get_workspace_principal(self, caller: Principal) -> Principal:
        return caller if self._config.has_session_servers else Principal(caller.id)

    async def _create_and_evict_idle(self, principal: Principal) -> Workspace:
        workspace = Workspace(principal, self._connections, self._factory)
        await workspace.apply_config(self._config)
        while self._config is not workspace.config:  # it has changed meanwhile
            await workspace.apply_config(self._config)
        self._workspaces[principal] = workspace
        while (
            len(self._workspaces) > self._max_workspaces and (evicted := self._choose_eviction(principal)) is not None
        ):
            await self._workspaces.pop(evicted).aclose()
        return workspace

    def _choose_eviction(self, principal: Principal) -> Principal | None:
        """Return the longest idle workspace of the user with the most, so that no user displaces others."""
        counts = Counter(candidate.id for candidate in self._workspaces)
        idle = [
            principal_to_evict
            for principal_to_evict, candidate in self._workspaces.items()
            if not candidate.active_runs and principal_to_evict != principal
        ]
        return max(idle, key=lambda candidate: counts[candidate.id], default=None)
