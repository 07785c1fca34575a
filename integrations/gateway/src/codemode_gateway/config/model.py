"""What a configuration says, checked: its servers, the gateway's own settings, what is wrong. Reads nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from codemode.cached_property import cached_property

Transport = Literal["stdio", "http", "sse", "openapi"]
ApprovalPolicy = Literal["never", "declared", "writes", "always"]
Sharing = Literal["user", "session", "shared"]
PinMode = Literal["off", "warn", "block"]
OutputFormat = Literal["both", "structured", "text"]

APPROVAL_POLICIES: tuple[ApprovalPolicy, ...] = ("never", "declared", "writes", "always")


class ConfigError(ValueError):
    """A configuration with which nothing can start; the message names the place and the way out."""


@dataclass(frozen=True)
class ConfigProblem:
    """A mistake that disables one ``server``, or, where that is None, is about the whole file.

    ``lacks_value``: what is written is right, and what it names is not there, such as a variable's value.
    """

    server: str | None
    path: str
    message: str
    lacks_value: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True)
class ServerConfig:
    """One server as it is to be connected: variables are filled in, so no value of it is for logs or programs.

    ``approval`` is the policy of the server, ``tool_approvals`` that of tools by pattern, ``auto_approve`` patterns of
    tools that are never asked about. ``allow`` and ``deny`` are patterns of tools (``*`` stands for any text); an empty
    ``allow`` is all. ``common_patterns`` are those of all four that the top of the file says for all of its servers.
    ``document`` is where the OpenAPI document of an API is that is used as a server: a URL or a path. Its operations
    that ``include`` has patterns of (all, where it is empty) are called at ``base_url``.
    ``secrets`` are texts that nobody but the server may read. Times are in milliseconds.
    """

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    folder: str | None = None
    """Where a process without `cwd` starts: the folder of the configuration. None is that of this process."""
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    document: str | None = None
    base_url: str | None = None
    include: tuple[str, ...] = ()
    approval: ApprovalPolicy = "declared"
    tool_approvals: Mapping[str, ApprovalPolicy] = field(default_factory=dict[str, "ApprovalPolicy"])
    auto_approve: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    common_patterns: frozenset[str] = frozenset()
    timeout_ms: int = 60_000
    connect_timeout_ms: int = 30_000
    max_concurrency: int = 32
    max_concurrency_per_program: int | None = None
    idle_ms: int = 600_000
    sharing: Sharing | None = None
    pin: PinMode = "warn"
    output_validation: Literal["warn", "strict"] = "warn"
    approval_wait_ms: int | None = None
    auth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    secrets: tuple[str, ...] = ()

    @property
    def calls_per_program(self) -> int:
        """How many calls one program, or one user of several, may have under way there; three quarters by default."""
        share = self.max_concurrency_per_program
        return self.max_concurrency - self.max_concurrency // 4 if share is None else min(share, self.max_concurrency)

    @property
    def identity(self) -> str:
        """What tells servers apart that have one name: where each is, and all that it is given. Holds secrets."""
        where = [self.transport, self.command, self.args, self.cwd, self.url]
        where += [self.document, self.base_url, self.include] if self.document is not None else []
        return json.dumps([*where, sorted(self.env.items()), sorted(self.headers.items())])

    def __repr__(self) -> str:
        return f"<ServerConfig {self.name!r}: {self.transport}>"


@dataclass(frozen=True)
class GatewaySettings:
    """The gateway's own settings. ``store`` is a URL (``sqlite:///...``, ``postgresql://...``) or None for the default.

    ``state_folder`` may be given as text. ``keys`` sign and seal pauses; without any, the gateway makes one and keeps
    it beside its store. ``journal`` and ``learn`` None are decided by how the gateway is served. With ``library`` each
    user's programs can be saved in the store, and called. ``max_waiting`` programs of one user may wait in the store
    before another one is refused. ``limits`` and ``clients`` are the objects of the file, checked.
    """

    store: str | None = None
    keys: tuple[str, ...] = ()
    journal: bool | None = None
    auth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    learn: bool | None = None
    library: bool = False
    tool_name: str = "auto"
    output: OutputFormat = "both"
    pass_through: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    clients: Mapping[str, Any] = field(default_factory=dict[str, Any])
    approval_wait_ms: int = 20_000
    max_waiting: int = 200
    state_folder: Path | None = None
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take a folder that is given as text."""
        if isinstance(cast("object", self.state_folder), str):
            object.__setattr__(self, "state_folder", Path(cast("str", self.state_folder)).expanduser())

    def __repr__(self) -> str:
        return f"<GatewaySettings: output {self.output!r}>"


@dataclass(frozen=True)
class GatewayConfig:
    """A whole configuration. ``servers`` are those that can be used, ``disabled`` the names that its file turns off.

    ``beside`` are the files, beside that at ``path``, that say a part of it. ``notes`` say what is no
    mistake and hardly meant.
    """

    servers: tuple[ServerConfig, ...] = ()
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    problems: tuple[ConfigProblem, ...] = ()
    disabled: tuple[str, ...] = ()
    path: Path | None = None
    extra_files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def has_session_servers(self) -> bool:
        """Whether some server is connected for each session of its own."""
        return any(server.sharing == "session" for server in self.servers)

    @property
    def secrets(self) -> tuple[str, ...]:
        """All texts that nobody may read, the longest first."""
        found = {*self.settings.secrets, *(text for server in self.servers for text in server.secrets)}
        return tuple(sorted(found, key=len, reverse=True))
