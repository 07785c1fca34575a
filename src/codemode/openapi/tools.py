"""Make one tool of each operation of an OpenAPI document."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..data.content import MediaContent, current_registry
from ..data.json_values import replace_lone_surrogates
from ..options.checked_fields import WrongTypeError
from ..schemas.compiled import CompiledSchema
from ..tools.context import ToolCallContext
from ..tools.tool import Tool
from ..tools.tool_schemas import Compile, FrameworkSchema, Mode
from ..trace.visible_text import clip_to_visible_line
from .calls import OperationCaller
from .operations import Operation, read_operations
from .spec import Spec, create_spec, format_names

if TYPE_CHECKING:
    import httpx

NeedsApproval = bool | Literal["unsafe"] | Callable[[Operation], Any]

DEFAULT_MAX_RESPONSE_BYTES = 10 << 20
DEFAULT_MAX_WAIT_MS = 10_000
_MAX_LOGGED_PROBLEMS = 20
_log = logging.getLogger("codemode.openapi")


class OpenApiTool(Tool):
    """A tool of an operation. ``metadata["openapi"]`` is the `Operation`."""

    is_foreign: ClassVar[bool] = True  # its schemas come from elsewhere and cannot be repaired


class OpenApiTools(list[Tool]):
    """The tools of a document. ``problems`` say what was left out or renamed, and why; ``caller`` sends requests."""

    problems: tuple[str, ...]
    caller: OperationCaller


class _OperationSchema(FrameworkSchema):
    """Made and compiled when a program first calls, or a model first looks up, the operation."""

    is_late = True

    def __init__(self, operation: Operation, side: Mode) -> None:
        self._operation = operation
        self._side = side

    @property
    def outline(self) -> dict[str, Any]:
        return self._operation.search_input_schema

    @property
    def definition(self) -> str:
        return self._operation.schema_digest

    def compile(self, compile_schema: Compile) -> CompiledSchema | None:
        is_input = self._side == "input"
        return compile_schema(self._operation.input_schema() if is_input else self._operation.output_schema())


def openapi_tools(
    spec: Spec | Mapping[str, Any],
    *,
    client: httpx.AsyncClient,
    base_url: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    needs_approval: NeedsApproval = False,
    max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    max_wait_ms: int = DEFAULT_MAX_WAIT_MS,
) -> OpenApiTools:
    """Return a tool for each operation of a document. Nothing is sent, and no schema is compiled.

    ``client`` has the credentials, and the ``base_url`` unless that is given here; a server that the document names is
    used only when you pass it: ``base_url=spec.servers[0]``. ``include`` and ``exclude`` are patterns (``*`` stands for
    any text) of operation ids, tool names, ``GET /path`` or ``tag:name``. ``needs_approval="unsafe"`` asks a person
    about all that is not GET, HEAD or OPTIONS; a function is given the `Operation` and returns what
    ``Tool(needs_approval=...)`` takes. After 429 or 503 with ``Retry-After``, idempotent methods wait and try again,
    for ``max_wait_ms`` in all.
    Raises `SpecError` for what is no document, `ValueError` without a server or for an unusable option.
    """
    spec = spec if isinstance(spec, Spec) else create_spec(spec, "the given object")
    caller = OperationCaller(client, _choose_server_url(spec, client, base_url), max_response_bytes, max_wait_ms)
    # Programs cannot set the parameters that the client fills in itself.
    client_parameters = [("header", operation.lower()) for operation in client.headers] + [
        ("query", operation) for operation in client.params
    ]
    operations, problems = read_operations(spec, client_parameters)
    selected, unmatched = _select_operations(operations, include=include, exclude=exclude)
    tools = OpenApiTools(_create_tool(operation, caller, needs_approval) for operation in selected)
    tools.caller = caller
    tools.problems = (*problems, *unmatched)
    for problem in tools.problems[:_MAX_LOGGED_PROBLEMS]:
        _log.warning("%s: %s", spec.source, problem)
    return tools


def _choose_server_url(spec: Spec, client: httpx.AsyncClient, base_url: str | None) -> str:
    import httpx

    server_url = base_url or str(client.base_url)
    url = httpx.URL(server_url)
    if url.scheme in ("http", "https") and url.host and not (url.query or url.fragment):
        return server_url
    if base_url:
        raise ValueError("base_url must be a URL with http:// or https:// and a host, without a query")
    raise ValueError(
        "no server is chosen: give the client a base_url, or pass base_url=...; the document's own servers are"
        f" never used automatically ({format_names(spec.servers) or 'none'})"
    )


def _select_operations(
    operations: Sequence[Operation], **patterns_by_option: Iterable[str]
) -> tuple[list[Operation], list[str]]:
    """Return the operations that patterns choose, and a problem for each pattern that fits none."""
    patterns = {
        option: () if isinstance(option_value, str) else tuple(option_value)
        for option, option_value in patterns_by_option.items()
    }
    for option, option_value in patterns_by_option.items():
        are_texts = all(isinstance(pattern, str) for pattern in patterns[option])  # pyright: ignore[reportUnnecessaryIsInstance]
        if isinstance(option_value, str) or not are_texts:
            raise WrongTypeError(f"{option} must be a list of patterns, such as {option}=['issues/*']")
    matched_patterns: set[str] = set()

    def match_and_record_patterns(option: str, operation: Operation) -> bool:
        names = [
            operation.id,
            operation.name,
            f"{operation.method} {operation.path}",
            *(f"tag:{tag}" for tag in operation.tags),
        ]
        matching = [pattern for pattern in patterns[option] if any(fnmatchcase(name, pattern) for name in names)]
        matched_patterns.update(matching)
        return bool(matching)

    included = [
        operation
        for operation in operations
        if not patterns["include"] or match_and_record_patterns("include", operation)
    ]
    selected = [operation for operation in included if not match_and_record_patterns("exclude", operation)]
    unmatched = [pattern for chosen in patterns.values() for pattern in chosen if pattern not in matched_patterns]
    return selected, [
        f"the pattern {clip_to_visible_line(pattern, 100)!r} matches no operation" for pattern in unmatched
    ]


def _create_tool(operation: Operation, caller: OperationCaller, needs_approval: NeedsApproval) -> Tool:
    async def execute(value: Any, _context: ToolCallContext) -> Any:
        result = await caller.call(operation, value or {})
        if not isinstance(result, MediaContent) or current_registry.get() is not None:
            return result
        return result.description_with_base64

    approval: Any = needs_approval(operation) if callable(needs_approval) else needs_approval
    if approval == "unsafe":
        approval = not operation.is_read_only
    return OpenApiTool(
        operation.name,
        execute=execute,
        description=replace_lone_surrogates(operation.description),
        input_schema=_OperationSchema(operation, "input"),
        output_schema=_OperationSchema(operation, "output"),
        needs_approval=approval,
        annotations=operation.annotations,
        metadata={"openapi": operation, "codecall": {"appId": operation.spec.title, "tags": list(operation.tags)}},
    )
