"""Options of invocations and pools: frozen values, validated when created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, ClassVar, Literal

from ..cached_property import cached_property
from .checked_fields import (
    CALLABLE,
    flag_field,
    make_choice_check,
    make_methods_or_none_check,
    option_field,
    optional_limit_field,
    positive_limit_field,
    require_command_or_none,
    require_count_or_clamp,
    require_mapping_or_none,
    require_nonempty_string_or_none,
    require_not_negative,
    require_positive,
    require_resume_guard_or_none,
    require_signing_keys_or_none,
    require_state_backend_or_none,
    require_strings,
    require_strings_and_uppercase,
)
from .part import OptionGroup, option_group

MIB = 1024 * 1024
MAX_SOURCE_BYTES = 1_000_000
"""Guest line numbers must stay below those of the guest runtime, which start at 2**20."""

MAX_MEMORY_LIMIT_BYTES = 768 * MIB

MAX_HEAP_BYTES = 1024 * MIB
"""The largest heap of any program. The worker's address space ends at 1.25 GiB; the engine must notice first."""

MAX_LEDGER_BYTES = 512 * MIB
"""A resumed ledger is decoded in memory, at times twice."""

MAX_STACK_SIZE_BYTES = 6 * MIB
"""A worker's native stack is 8 MiB."""

MAX_PROGRAMS_PER_WORKER = 64  # a zygote holds an engine for each, of a megabyte

MIN_MODEL_CHARACTERS = 1000
"""Less would not fit a description of a result that is too large."""

Hook = Callable[[Any], Awaitable[None] | None]
Listing = Literal["full", "names", "search"]
OutputValidation = Literal["warn", "strict"]


def _require_model_characters_or_none(value: Any, path: str) -> int | None:
    return None if value is None else require_positive(value, path, minimum=MIN_MODEL_CHARACTERS)


@option_group
class ExecutionPolicy(OptionGroup):
    """Limits of one invocation. Byte limits count UTF-8 bytes of source or JSON text.

    ``max_values`` limits the containers and scalars of each input, output, answer and result.
    ``timeout_includes_tools`` False stops ``timeout_ms`` while the program waits for its calls; time in which only a
    person's decision is missing never counts. ``tool_timeout_ms`` limits each tool call. ``in_flight_limit`` says
    what happens to a call beyond ``max_in_flight_bridge_requests``: "fail" throws in the program, "queue" starts it
    when another call has ended. ``on_saturation`` None does what the pool does when no worker is free; "wait" waits up
    to the pool's ``wait_timeout_ms``. ``listing`` is what the description of codeMode contains of the tools: all
    declarations that fit, their names, or how to search them, which is the same text for any tools.
    ``output_validation`` says what happens to a tool's output that violates its schema: "warn" passes it on with a
    warning, "strict" fails the call. ``values`` "rich" passes dates, bytes and sets as `Date`, `Uint8Array` and `Set`,
    and back as `datetime`, `bytes` and `set`; "json" passes JSON.
    """

    path: ClassVar[str] = "execution_policy"

    timeout_ms: int = positive_limit_field(30_000)
    memory_limit_bytes: int = positive_limit_field(
        64 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB, is_sent_to_worker=True, is_signed=True
    )
    max_stack_size_bytes: int = positive_limit_field(
        2 * MIB, MAX_STACK_SIZE_BYTES, is_sent_to_worker=True, is_signed=True
    )
    max_result_bytes: int = positive_limit_field(MIB, is_sent_to_worker=True)
    max_source_bytes: int = positive_limit_field(256 * 1024, MAX_SOURCE_BYTES)
    max_tool_input_bytes: int = positive_limit_field(MIB, is_sent_to_worker=True, is_signed=True)
    max_tool_output_bytes: int = positive_limit_field(4 * MIB)
    max_values: int = positive_limit_field(250_000)
    max_bridge_requests: int = positive_limit_field(256, is_sent_to_worker=True, is_signed=True)
    max_in_flight_bridge_requests: int = positive_limit_field(32, is_sent_to_worker=True, is_signed=True)
    in_flight_limit: Literal["fail", "queue"] = option_field(
        "fail", make_choice_check("fail", "queue"), is_sent_to_worker=True, is_signed=True
    )
    max_console_bytes: int = positive_limit_field(64 * 1024, is_sent_to_worker=True, is_signed=True)
    max_ledger_bytes: int = positive_limit_field(128 * MIB, MAX_LEDGER_BYTES, is_signed=True)
    max_catalog_requests: int = positive_limit_field(64, is_sent_to_worker=True, is_signed=True)
    max_content_part_bytes: int = positive_limit_field(16 * MIB)
    max_content_bytes: int = positive_limit_field(64 * MIB)
    max_content_parts: int = positive_limit_field(64, is_sent_to_worker=True, is_signed=True)
    max_description_characters: int = positive_limit_field(40_000)
    listing: Literal["full", "names", "search"] = option_field("full", make_choice_check("full", "names", "search"))
    check_program: bool = flag_field(default=True)
    timeout_includes_tools: bool = flag_field(default=True, is_signed=True)
    tool_timeout_ms: int | None = optional_limit_field()
    on_saturation: Literal["fail", "wait"] | None = option_field(None, make_choice_check(None, "fail", "wait"))
    output_validation: OutputValidation = option_field("warn", make_choice_check("warn", "strict"))
    values: Literal["json", "rich"] = option_field("json", make_choice_check("json", "rich"), is_signed=True)


@option_group
class LargeHeapPolicy(ExecutionPolicy):
    """Limits of a surface whose programs may use the largest possible heap."""

    memory_limit_bytes: int = positive_limit_field(
        64 * MIB, MAX_HEAP_BYTES, minimum=MIB, is_sent_to_worker=True, is_signed=True
    )


@option_group
class FetchPolicy(OptionGroup):
    """The requests that the guest's ``fetch`` may make; none without origins and prefixes.

    ``fetch`` is ``async (url, *, method, headers, body) -> response``; None uses httpx. Addresses are checked before
    both, but only httpx's connection is pinned to the checked address. A name that this host cannot resolve, as behind
    a proxy, is not checked before a custom ``fetch``. A prefix ends on a path boundary.
    """

    path: ClassVar[str] = "fetch_policy"

    fetch: Callable[..., Awaitable[Any]] | None = field(default=None, metadata=CALLABLE)
    allowed_origins: tuple[str, ...] = option_field((), require_strings)
    allowed_url_prefixes: tuple[str, ...] = option_field((), require_strings)
    allowed_methods: tuple[str, ...] = option_field(("GET", "HEAD"), require_strings_and_uppercase)
    max_response_bytes: int = positive_limit_field(MIB)
    allow_redirects: bool = flag_field(default=False)
    max_redirects: int = positive_limit_field(10)
    refuse_private_addresses: bool = flag_field(default=True)


@option_group
class ApprovalPolicy(OptionGroup):
    """How calls that need approval get it: from a callback at once, or by pausing with an `Interrupt`."""

    path: ClassVar[str] = "approval"

    mode: Literal["callback", "interrupt"] = option_field("callback", make_choice_check("callback", "interrupt"))
    on_approval_required: Callable[[Any], Any] | None = field(default=None, metadata=CALLABLE)
    show_denial_reason: bool = flag_field(default=False)


@option_group
class Pipeline(OptionGroup):
    """Functions, sync (in a thread) or async, that every tool call passes through.

    ``before(call)`` may replace the validated input of a `PipelineCall`, or refuse the call with a `CodeModeToolError`;
    ``after(call, output)`` may replace the output. None changes nothing, `PIPELINE_NULL` means null.
    """

    path: ClassVar[str] = "pipeline"

    before: Callable[[Any], Any] | None = field(default=None, metadata=CALLABLE)
    after: Callable[[Any, Any], Any] | None = field(default=None, metadata=CALLABLE)


@option_group
class Lifecycle(OptionGroup):
    """Listeners, sync or async, each called with one event. Their exceptions never affect the invocation."""

    path: ClassVar[str] = "lifecycle"

    on_invocation_start: Hook | None = field(default=None, metadata=CALLABLE)
    on_nested_tool_call: Hook | None = field(default=None, metadata=CALLABLE)
    on_nested_tool_result: Hook | None = field(default=None, metadata=CALLABLE)
    on_fetch_request: Hook | None = field(default=None, metadata=CALLABLE)
    on_fetch_result: Hook | None = field(default=None, metadata=CALLABLE)
    on_interrupt: Hook | None = field(default=None, metadata=CALLABLE)
    on_console: Hook | None = field(default=None, metadata=CALLABLE)
    on_catalog: Hook | None = field(default=None, metadata=CALLABLE)
    on_guest_message: Hook | None = field(default=None, metadata=CALLABLE)
    on_refusal: Hook | None = field(default=None, metadata=CALLABLE)
    on_trace: Hook | None = field(default=None, metadata=CALLABLE)
    on_hook_error: Callable[..., Awaitable[None] | None] | None = field(default=None, metadata=CALLABLE)

    @cached_property
    def has_hooks(self) -> bool:
        """True if any hook is set. Every run reads it."""
        return any(hook is not None for hook in self._get_option_values())


@option_group
class Telemetry(OptionGroup):
    """OpenTelemetry spans and metrics. Source, inputs and outputs are not recorded, only their sizes.

    ``record_arguments`` True records calls of tools with their arguments and results, which may be secrets: JSON text
    of at most 8,000 characters each, as ``gen_ai.tool.call.arguments`` and ``gen_ai.tool.call.result``.
    ``record_inputs`` and ``record_outputs`` False leave out the sizes too, and what tools said when they failed.
    ``tracer`` and ``meter`` None are the global providers' own. ``metadata`` becomes attributes of the outer span.
    """

    path: ClassVar[str] = "telemetry"

    is_enabled: bool = flag_field(default=False)
    record_inputs: bool = flag_field(default=True)
    record_outputs: bool = flag_field(default=True)
    record_arguments: bool = flag_field(default=False)
    function_id: str | None = option_field(None, require_nonempty_string_or_none)
    metadata: Mapping[str, Any] | None = option_field(None, require_mapping_or_none)
    tracer: Any = field(default=None, metadata={"check": make_methods_or_none_check("start_span")})
    meter: Any = field(
        default=None, metadata={"check": make_methods_or_none_check("create_counter", "create_histogram")}
    )


@option_group
class ModelOutput(OptionGroup):
    """What `CodeModeTool.to_model_output` shows the model in addition to the result, and how much.

    A result of more than ``max_model_characters``, as text or compact JSON, is replaced by its size, its shape and its
    beginning. None shows all of it.
    """

    path: ClassVar[str] = "model_output"

    include_nested_tool_summary: bool = flag_field(default=False)
    include_nested_tool_outputs: bool = flag_field(default=False)
    include_fetch_summary: bool = flag_field(default=False)
    include_console: bool = flag_field(default=False)
    max_summary_entries: int = option_field(32, require_count_or_clamp)
    max_model_characters: int | None = option_field(None, _require_model_characters_or_none)

    @cached_property
    def includes_calls(self) -> bool:
        """True if calls are listed with the result."""
        return self.include_nested_tool_summary or self.include_nested_tool_outputs or self.include_fetch_summary

    @cached_property
    def shows_run_details(self) -> bool:
        """True if details of a run are shown with its result."""
        return self.includes_calls or self.include_console


@option_group
class ContinuationOptions(OptionGroup):
    """How continuations are signed and resumed. None uses the process-wide setting.

    ``keys`` are bytes or text; the last signs, any verifies, the first derives the ids of programs that a workflow
    engine replays. ``conversation_id`` is signed, not stored. ``seal`` encrypts (extra ``sealed``) and accepts only
    sealed ones; ``compress`` makes them smaller. ``any_engine`` accepts continuations of other engine versions, which
    may replay differently.

    ``journal`` stores each call before it starts, and each outcome before the program sees it: after the death of its
    host, the same outer call, repeated on any host, continues from there. It needs ``keys`` and a ``conversation_id``,
    here or with the call; without a ``tool_call_id`` no call is the same again, and only resumes use the journal.
    """

    path: ClassVar[str] = "continuation"

    keys: tuple[bytes, ...] | None = field(default=None, repr=False, metadata={"check": require_signing_keys_or_none})
    max_age_ms: int | None = optional_limit_field()
    conversation_id: str | None = option_field(None, require_nonempty_string_or_none)
    seal: bool = flag_field(default=False)
    compress: bool = flag_field(default=False)
    guard: Any = field(default=None, metadata={"check": require_resume_guard_or_none})
    content_store: Any = field(
        default=None, metadata={"check": make_methods_or_none_check("put_content", "get_content")}
    )
    journal: Any = field(
        default=None, metadata={"check": make_methods_or_none_check("open", "write", "renew", "end", "release")}
    )
    any_engine: bool = flag_field(default=False)


@option_group
class PoolOptions(OptionGroup):
    """How many workers run and how they start. ``max_workers`` None follows the available memory.

    ``programs_per_worker`` above 1 lets a worker run several programs of one share, each in a fresh engine (on Linux);
    ``isolation`` "required" then needs ``allow_kept_workers``.
    """

    path: ClassVar[str] = "pool"

    max_workers: int | None = optional_limit_field()
    on_saturation: Literal["fail", "wait"] = option_field("fail", make_choice_check("fail", "wait"))
    wait_timeout_ms: int | None = optional_limit_field()
    spare_workers: int = option_field(2, require_not_negative)
    isolation: Literal["auto", "required"] = option_field("auto", make_choice_check("auto", "required"))
    start_method: Literal["auto", "fork", "exec"] = option_field("auto", make_choice_check("auto", "fork", "exec"))
    worker_command: tuple[str, ...] | None = option_field(None, require_command_or_none)
    programs_per_worker: int = positive_limit_field(1, MAX_PROGRAMS_PER_WORKER)
    allow_kept_workers: bool = flag_field(default=False)

    def __post_init__(self) -> None:
        """Refuse reused workers if isolation is required, unless they are allowed."""
        super().__post_init__()
        if self.programs_per_worker > 1 and self.isolation == "required" and not self.allow_kept_workers:
            raise ValueError('pool.programs_per_worker above 1 with isolation="required" needs allow_kept_workers=True')


@option_group
class CodeModeOptions(OptionGroup):
    """All options of an invocation. Each part may also be a mapping with snake_case or camelCase keys.

    ``fetch_policy`` None or False disables ``fetch``. ``state`` stores values for later programs: a mapping, an object
    with async ``get``, ``set``, ``delete`` and ``keys``, or a function that returns either, or None, for the
    ``conversation_id`` of a call. False is for plugins, which have a default store. Raises `ValueError` with the full
    path of an invalid value.
    """

    execution_policy: ExecutionPolicy
    fetch_policy: FetchPolicy | None
    approval: ApprovalPolicy
    pipeline: Pipeline
    lifecycle: Lifecycle
    telemetry: Telemetry
    model_output: ModelOutput
    continuation: ContinuationOptions
    state: Any = field(repr=False)

    def __init__(
        self,
        *,
        execution_policy: ExecutionPolicy | Mapping[str, Any] | None = None,
        fetch_policy: FetchPolicy | Mapping[str, Any] | Literal[False] | None = None,
        approval: ApprovalPolicy | Mapping[str, Any] | None = None,
        pipeline: Pipeline | Mapping[str, Any] | None = None,
        lifecycle: Lifecycle | Mapping[str, Any] | None = None,
        telemetry: Telemetry | Mapping[str, Any] | None = None,
        model_output: ModelOutput | Mapping[str, Any] | None = None,
        continuation: ContinuationOptions | Mapping[str, Any] | None = None,
        state: Any = None,
    ) -> None:
        parts = {
            "execution_policy": ExecutionPolicy.of(execution_policy),
            "fetch_policy": None if fetch_policy is None or fetch_policy is False else FetchPolicy.of(fetch_policy),
            "approval": ApprovalPolicy.of(approval),
            "pipeline": Pipeline.of(pipeline),
            "lifecycle": Lifecycle.of(lifecycle),
            "telemetry": Telemetry.of(telemetry),
            "model_output": ModelOutput.of(model_output),
            "continuation": ContinuationOptions.of(continuation),
            "state": require_state_backend_or_none(state, "state"),
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    @cached_property
    def has_state(self) -> bool:
        """True if programs can store values for later programs."""
        return self.state is not None and self.state is not False

    @cached_property
    def uses_optional_parts(self) -> bool:
        """False if these options need no fetch, state, journal, sealed continuation or telemetry."""
        continuation = self.continuation
        is_plain_continuation = continuation.journal is None and not continuation.seal
        return not is_plain_continuation or self.fetch_policy is not None or self.has_state or self.telemetry.is_enabled

    def with_default_limits(self, limits: ExecutionPolicy) -> CodeModeOptions:
        """Return the same options with other defaults of the execution policy."""
        policy = self.execution_policy.with_fallback(limits)
        return self if policy is self.execution_policy else self.with_parts(execution_policy=policy)

    def with_listing(self, listing: Listing | None) -> CodeModeOptions:
        """Return the same options with another ``execution_policy.listing``; None changes nothing."""
        if listing is None:
            return self
        return self.with_parts(execution_policy=ExecutionPolicy(listing=listing).with_fallback(self.execution_policy))

    def without_journal(self) -> CodeModeOptions:
        """Return the same options without a journal."""
        continuation = self.continuation
        return (
            self if continuation.journal is None else self.with_parts(continuation=replace(continuation, journal=None))
        )

    def with_parts(self, **parts: Any) -> CodeModeOptions:
        """Return the same options with some parts replaced."""
        current: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        return CodeModeOptions(**{**current, **parts})
