"""The settings in which surfaces differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from .options.parts import ExecutionPolicy
from .records import record

ErrorFields: TypeAlias = Callable[[Any, str, str, bool], Mapping[str, Any]]
"""Takes a `CodeModeError`, the kind and name of a request, and whether host code raised the error."""


@record(kw_only=True)
class GuestSettings:
    """How a program runs in its guest: rows of the tables in the guest runtime.

    ``wrapper`` is the kind of function around the program's text, or "module" for an ES module, which runs only after
    its imports are known. ``globals`` are installed by name at the start, and ``fetch`` if settings and policy allow
    it. ``shadowed`` are engine globals that are hidden. ``result`` "sanitised" cuts the return value beyond
    ``max_result_depth`` levels and ``max_result_properties`` members in total, and reports it; "json" takes it
    unchanged or fails; "texts" too, but converts a BigInt, symbol or function to text. ``console`` "stable" writes
    objects with sorted keys. ``limit_names`` maps our names of limits to the guest's. With ``stops_itself`` the worker
    stops a program that takes too long in a turn, and sends its output.
    """

    wrapper: Literal["sloppy", "strict", "module"]
    globals: tuple[str, ...]
    shadowed: tuple[str, ...] = ()
    result: Literal["json", "sanitised", "texts"] = "json"
    max_result_depth: int = 0
    max_result_properties: int = 0
    console: Literal["plain", "stable"] = "plain"
    limit_names: Mapping[str, str] | None = None
    stops_itself: bool = False


@record(kw_only=True)
class StaticRules:
    """Static rules for programs. ``runs_unanalysed``: a program runs even without facts.

    ``checks_tools``: certain errors in tool names and inputs are reported before anything runs. ``analysis_ms`` limits
    the worker's analysis. ``tool_call`` shows how a tool ``{name}`` is called.
    """

    disabled_builtins: tuple[str, ...] = ()
    disabled_globals: tuple[str, ...] = ()
    allow_loops: bool = True
    runs_unanalysed: bool = True
    checks_tools: bool = True
    analysis_ms: int = 50
    tool_call: str = "tools.{name}(input)"

    @property
    def refuses_unanalysed(self) -> bool:
        """True if only programs that certainly keep the rules run."""
        return not self.runs_unanalysed


@record(kw_only=True)
class HostErrorRules:
    """The part of a failed call that a program sees.

    ``codes`` maps the reason of an error (`CodeModeError.reason`) to this surface's code; without it an error has the
    code of its class. ``detail`` "message" shows messages of host exceptions, without paths and stacks. With
    ``in_spans`` telemetry records exceptions with their stacks, otherwise only their classes.

    ``error_fields`` returns the public fields of an error for surfaces with error classes of their own: plain JSON with
    at least the strings ``class``, ``message``, ``code`` and ``hint``. It gets the error, the kind and name of the
    request, and whether host code raised it. Pure; runs on the event loop.
    """

    codes: Mapping[str, str] | None = None
    detail: Literal["hidden", "message"] = "hidden"
    in_spans: bool = True
    error_fields: ErrorFields | None = None


@record(kw_only=True)
class LargeStringRules:
    """When large strings of tools' outputs become references in a program.

    Strings of at least ``threshold_bytes`` do. ``max_reference_bytes`` limits each, ``max_total_bytes`` all of one
    invocation and the content of one input or result; ``max_resolved_bytes`` those that the program converts to
    ordinary strings. With ``allow_composites`` the conversion is automatic. All count UTF-8 bytes.
    """

    threshold_bytes: int = 1024
    max_reference_bytes: int = 1 << 20
    max_total_bytes: int = 10 << 20
    max_resolved_bytes: int = 5 << 20
    allow_composites: bool = False


@record(kw_only=True)
class OutputRules:
    """The total output of a program: items, console and value, in UTF-8 bytes.

    Exceeding it ends the program, which cannot catch that. ``text`` and ``json`` are its globals for items.
    """

    max_bytes: int = 64 << 10


@record(kw_only=True)
class SurfaceSettings:
    """The settings of a surface for its runs.

    ``name`` is signed into continuations, which resume only on the same surface, and is part of the program cache's
    key. ``outer_tool`` is the tool that the model calls, ``direct_tool`` the one for a call without a program; spans
    use them. ``request_kinds`` are those that a program may make. ``limits`` are this surface's defaults.
    ``parameters``, plain JSON, hold the differences from the surface's defaults: they are signed with the name, and
    ``restored`` rebuilds the settings from them to resume a pause. With a ``sidecar`` large strings become references,
    with ``output`` programs write items. With ``has_content`` tools use images, audio and files, of which programs have
    handles. ``unawaited`` says what happens to unawaited calls when the program has ended: "refuse" fails, "abandon"
    cancels them and keeps the result, "drain" waits for them. ``at_deadline`` says what happens to a waiting program at
    the end of the model's call: it fails, or it is suspended until it is continued; then ``timeout_ms`` limits only its
    own computing. With ``shows_run_details`` a model sees more of a run than its value, which recorded outcomes store
    too.
    ``returns_rich_values``: dates, bytes and sets of a result are Python values for the host, if
    ``execution_policy.values`` is "rich"; else JSON, for a model. ``takes_input``: its programs are saved programs,
    functions of ``input``.
    """

    name: str
    outer_tool: str
    direct_tool: str = ""
    guest: GuestSettings
    request_kinds: frozenset[str] = frozenset({"tool", "catalog", "fetch"})
    limits: ExecutionPolicy = ExecutionPolicy()
    static_rules: StaticRules = StaticRules()
    host_errors: HostErrorRules = HostErrorRules()
    sidecar: LargeStringRules | None = None
    output: OutputRules | None = None
    has_content: bool = False
    unawaited: Literal["refuse", "drain", "abandon"] = "refuse"
    at_deadline: Literal["fail", "rest"] = "fail"
    shows_run_details: bool = False
    returns_rich_values: bool = False
    takes_input: bool = False
    parameters: Mapping[str, Any] | None = None
    restored: Callable[[Mapping[str, Any]], SurfaceSettings] | None = None
