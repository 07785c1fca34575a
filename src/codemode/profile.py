"""The one value in which surfaces differ. Nothing below `surfaces/` asks for a profile's name to decide anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .cached_property import cached_property
from .options.parts import ExecutionPolicy
from .records import record

ErrorFields: TypeAlias = Callable[[Any, str, str, bool], Mapping[str, Any]]
"""Takes a `CodeModeError`, the kind and the name of a request, and whether host code has raised it."""


@dataclass(frozen=True, kw_only=True)
class GuestSettings:
    """How a program stands in its guest: rows of the tables in `guest/kernel/faces.js`.

    ``wrapper`` is the function that the program's text becomes the body of, or "module": it is an ES module, and runs
    only when it is known what it imports. ``globals`` are installed by name when the program starts, and ``fetch``
    beside them where profile and policy have it. ``shadowed`` are names of the engine's that mean nothing in it.
    ``result`` "sanitised" cuts what it returns beyond ``max_result_depth`` levels and ``max_result_properties`` members
    in all, and says so; "json" takes it as it is, or not at all; "texts" too, but makes text of a BigInt, a symbol or a
    function that it returns. ``console`` "stable" writes objects with their keys
    sorted. ``limit_names`` are what limits are called in it, by their names here. With ``stops_itself`` its own worker
    stops a program that takes too long in a turn, and sends what it has written.
    """

    wrapper: Literal["sloppy", "strict", "module"]
    globals: tuple[str, ...]
    shadowed: tuple[str, ...] = ()
    result: Literal["json", "sanitised", "texts"] = "json"
    max_result_depth: int = 0
    max_result_properties: int = 0
    console: Literal["plain", "stable"] = "plain"
    limit_names: Mapping[str, str] = field(default_factory=dict[str, str])
    stops_itself: bool = False

    @cached_property
    def is_module(self) -> bool:
        """True when a program is an ES module."""
        return self.wrapper == "module"


@record(kw_only=True)
class StaticRules:
    """What a program may not say. ``runs_unanalysed``: it runs though nothing is known of it.

    ``checks_tools``: what must fail for its tool's name or input is told of before anything runs. ``analysis_ms`` is
    how long a worker may compute to find out. ``tool_call`` shows how a tool ``{name}`` is called.
    """

    disabled_builtins: tuple[str, ...] = ()
    disabled_globals: tuple[str, ...] = ()
    allow_loops: bool = True
    runs_unanalysed: bool = True
    checks_tools: bool = True
    analysis_ms: int = 50
    tool_call: str = "tools.{name}(input)"

    @property
    def is_in_force(self) -> bool:
        """True when only what is known to keep to them runs."""
        return not self.runs_unanalysed


@record(kw_only=True)
class HostErrors:
    """What a program reads of a call that failed.

    ``codes`` gives for the reason of an error (`CodeModeError.reason`) the code that it has in this face; without them
    it has the code of its class. ``detail`` "message" shows what host code raised, without paths and stacks. With
    ``in_spans`` telemetry records all of that, with its stack; without it only of which class it was.

    ``words`` gives, for a face whose errors are classes of its own, the public fields of one, plain JSON with at least
    the texts ``class``, ``message``, ``code`` and ``hint``. It is told the error, the kind and the name of the request
    that it answers, and whether the code of the host that was called has raised it. Pure; on the event loop.
    """

    codes: Mapping[str, str] | None = None
    detail: Literal["hidden", "message"] = "hidden"
    in_spans: bool = True
    words: ErrorFields | None = None


@record(kw_only=True)
class SidecarRules:
    """How large strings of what tools give become references in a program, which the host puts the text in for.

    A string of at least ``threshold_bytes`` is one. ``max_reference_bytes`` bounds each, ``max_total_bytes`` all of one
    invocation, and what goes into one input or result; ``max_resolved_bytes`` what the program makes ordinary strings
    of. With ``allow_composites`` it need not ask for that. All count UTF-8 bytes.
    """

    threshold_bytes: int = 1024
    max_reference_bytes: int = 1 << 20
    max_total_bytes: int = 10 << 20
    max_resolved_bytes: int = 5 << 20
    allow_composites: bool = False


@record(kw_only=True)
class OutputRules:
    """How much a program may write in all: items of output, its console and its value together, in UTF-8 bytes.

    What is beyond ends it, and it cannot catch that. ``text`` and ``json`` are its globals for items.
    """

    max_bytes: int = 64 << 10


@dataclass(frozen=True, kw_only=True)
class SurfaceSettings:
    """What a surface asks of a run. A field is here because something reads it.

    ``name`` is signed into continuations, which only go on under the same one, and part of the program cache's key.
    ``outer_tool`` is what the model calls, ``direct_tool`` what it calls for one call without a program; spans name
    them. ``request_kinds`` are those that a program may make. ``limits`` are the defaults of this surface, for those
    that the host does not set. ``parameters``, plain JSON, say in what it differs from its face's defaults: they are
    signed with the name, and ``restored`` makes the profile of them with which a pause goes on. With a ``sidecar``
    large strings go into programs as references, with ``output`` they write items. With ``has_content`` tools give and
    take images, audio and files, of which programs have handles. ``unawaited`` says what comes of
    calls that nobody waits for when the program has ended: "refuse" makes an error of them, "abandon" ends them, and
    the result stands, "drain" waits for them. ``at_deadline`` says what comes of a program that waits when the time of
    the model's call is up: it fails, or it rests until somebody goes on with it; then ``timeout_ms`` measures nothing
    but what it computes. With ``tells_of_runs`` a model is told more of a run than its value, and a recorded outcome
    keeps that too. ``returns_rich_values``: a result's dates, bytes and sets are Python values for the host, where
    ``execution_policy.values`` is "rich"; else they are JSON, for a model.
    """

    name: str
    outer_tool: str
    direct_tool: str = ""
    guest: GuestSettings
    request_kinds: frozenset[str] = frozenset({"tool", "catalog", "fetch"})
    limits: ExecutionPolicy = field(default_factory=ExecutionPolicy)
    static_rules: StaticRules = field(default_factory=StaticRules)
    host_errors: HostErrors = field(default_factory=HostErrors)
    sidecar: SidecarRules | None = None
    output: OutputRules | None = None
    has_content: bool = False
    unawaited: Literal["refuse", "drain", "abandon"] = "refuse"
    at_deadline: Literal["fail", "rest"] = "fail"
    tells_of_runs: bool = False
    returns_rich_values: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    restored: Callable[[Mapping[str, Any]], SurfaceSettings] | None = field(default=None, compare=False, repr=False)
