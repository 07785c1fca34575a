"""The checked configuration: servers, the gateway's settings, and problems."""

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
    """An unusable configuration. The message says where it is wrong and what to do."""


@dataclass(frozen=True)
class ConfigProblem:
    """A mistake that disables one ``server``, or concerns the whole file if that is None.

    ``lacks_value``: the file is right, but something that it names is missing, such as a variable's value.
    """

    server: str | None
    path: str
    message: str
    lacks_value: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True)
class ServerConfig:
    """One server, with variables filled in. Security: its values are not for logs or programs.

    ``approval`` is the server's policy; ``tool_approvals`` are policies by tool pattern; ``auto_approve`` are patterns
    of tools that never need approval. ``allow`` and ``deny`` are tool patterns (``*`` matches any text); an empty
    ``allow`` allows all. ``common_patterns`` are patterns among these four that the file sets for all servers.
    ``document`` is the URL or path of the OpenAPI document of an API; its operations that match ``include`` (all, if
    empty) are called at ``base_url``. ``secrets`` are texts that only the server may see. Times are in milliseconds.
    """

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    folder: str | None = None
    """The folder in which a process without `cwd` starts: that of the configuration, or None for the current folder."""
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
    def program_concurrency_limit(self) -> int:
        """The maximum of concurrent calls of one program, or of one of several users. Default: three quarters."""
        share = self.max_concurrency_per_program
        return self.max_concurrency - self.max_concurrency // 4 if share is None else min(share, self.max_concurrency)

    @property
    def identity(self) -> str:
        """Distinguishes servers of the same name by address and all inputs. Contains secrets."""
        address = [self.transport, self.command, self.args, self.cwd, self.url]
        address += [self.document, self.base_url, self.include] if self.document is not None else []
        return json.dumps([*address, sorted(self.env.items()), sorted(self.headers.items())])

    def __repr__(self) -> str:
        return f"<ServerConfig {self.name!r}: {self.transport}>"


@dataclass(frozen=True)
class GatewaySettings:
    """The gateway's settings. ``store`` is a URL (``sqlite:///...``, ``postgresql://...``) or None for the default.

    ``state_folder`` may be a string. ``keys`` sign and seal pauses; without keys the gateway creates one next to its
    store. None for ``journal`` and ``learn`` means a default for the transport. ``library`` lets programs save programs
    in the store and call them. ``max_waiting`` limits the waiting programs of one user. ``limits`` and ``clients`` are
    the checked objects of the file.
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
        """Convert a folder that is a string."""
        if isinstance(cast("object", self.state_folder), str):
            object.__setattr__(self, "state_folder", Path(cast("str", self.state_folder)).expanduser())

    def __repr__(self) -> str:
        return f"<GatewaySettings: output {self.output!r}>"


@dataclass(frozen=True)
class GatewayConfig:
    """A whole configuration. ``servers`` are the usable ones, ``disabled`` the names that the file disables.

    ``extra_files`` are further files with parts of the configuration, such as .env files. ``notes`` are warnings about
    settings that are valid but probably wrong.
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
        """True if a server is connected once for each session."""
        return any(server.sharing == "session" for server in self.servers)

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secrets, the longest first."""
        found = {*self.settings.secrets, *(text for server in self.servers for text in server.secrets)}
        return tuple(sorted(found, key=len, reverse=True))
