"""The names that a plugin for a framework may import beside the public ones of `codemode`. Imported when asked for.

Nothing else of the package is kept as it is from one version to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .host.imports import late_names

if TYPE_CHECKING:
    from .cached_property import cached_property
    from .data.content import CONTENT_SCHEMA, apart, current, places_for, with_parts
    from .data.exact_integers import integers_as_in, with_texts, without_texts
    from .data.json_shape import weigh
    from .data.json_values import canonical_json, decode_json, refuse_too_many
    from .data.references import resolve_reference
    from .execution.call_context import LatePlace, TextPlace
    from .execution.resume import OpenedContinuation, end_continuation, open_continuation
    from .host.forks import forkable_lock
    from .host.http_timeouts import body_within, protocol_with_header_timeout
    from .host.sync import refuse_in_workflow
    from .host.threads import LARGE_CHARACTERS, off_loop, run_check
    from .interrupts.interrupt import (
        APPROVAL_KIND,
        agent_pause,
        recovery_of,
        same_json,
        was_answered,
        way_on,
        why_refused,
    )
    from .observe.reporter import heard_by
    from .options.checked_fields import WrongTypeError, not_negative
    from .options.parts import Listing
    from .protocol.ledger import UNKNOWN_OUTCOME_KIND, outer_id_of
    from .schemas.compiled import (
        MAX_PROBLEMS,
        CompiledSchema,
        JsonSchema,
        SchemaMismatch,
        ValidatedInput,
        clip,
        completed,
        path_text,
        plain_copy,
    )
    from .schemas.json_schemas import DictSchema, readable_schema
    from .schemas.python_types import TypeSchema
    from .schemas.type_traits import ReadAgain, is_read_once, read_again
    from .source.program_input import PROGRAM_FIELDS, with_program_field
    from .stores.agent_runs import (
        AgentRecords,
        AgentRun,
        ResumeWith,
        ToolForm,
        ToolForms,
        agent_run,
        joined_programs,
        read_end,
        require_shown,
        shown_digests,
        stored_pause,
        written_end,
    )
    from .stores.answers import edited_input
    from .stores.durability import StoreLike, open_store, with_store
    from .stores.records import Tenant, Tenants
    from .stores.resumer import continuation_of, require_guard
    from .surfaces.code_call.names import looks_like_meta_tool
    from .surfaces.exec_wait.options import configured
    from .surfaces.exec_wait.pair import direct_names
    from .surfaces.exec_wait.sources import listed
    from .surfaces.exec_wait.stored import scope_of
    from .tools.adapters import register_adapter
    from .tools.collecting import refuse_framework_tool
    from .tools.prepared import PreparedTool, prepared
    from .tools.selection import Places, Selection, not_among_the_tools, places
    from .tools.tool import ImpossibleNameError, can_be_called, check_name, parse_summary
    from .tools.tool_schemas import Compile, FrameworkSchema, InferredOutput
    from .trace.failures import log_left_out
    from .workers.pool import check_pool

__all__ = [
    "APPROVAL_KIND",
    "CONTENT_SCHEMA",
    "LARGE_CHARACTERS",
    "MAX_PROBLEMS",
    "PROGRAM_FIELDS",
    "UNKNOWN_OUTCOME_KIND",
    "AgentRecords",
    "AgentRun",
    "Compile",
    "CompiledSchema",
    "DictSchema",
    "FrameworkSchema",
    "ImpossibleNameError",
    "InferredOutput",
    "JsonSchema",
    "LatePlace",
    "Listing",
    "OpenedContinuation",
    "Places",
    "PreparedTool",
    "ReadAgain",
    "ResumeWith",
    "SchemaMismatch",
    "Selection",
    "StoreLike",
    "Tenant",
    "Tenants",
    "TextPlace",
    "ToolForm",
    "ToolForms",
    "TypeSchema",
    "ValidatedInput",
    "WrongTypeError",
    "agent_pause",
    "agent_run",
    "apart",
    "body_within",
    "cached_property",
    "can_be_called",
    "canonical_json",
    "check_name",
    "check_pool",
    "clip",
    "completed",
    "configured",
    "continuation_of",
    "current",
    "decode_json",
    "direct_names",
    "edited_input",
    "end_continuation",
    "forkable_lock",
    "heard_by",
    "integers_as_in",
    "is_read_once",
    "joined_programs",
    "listed",
    "log_left_out",
    "looks_like_meta_tool",
    "not_among_the_tools",
    "not_negative",
    "off_loop",
    "open_continuation",
    "open_store",
    "outer_id_of",
    "parse_summary",
    "path_text",
    "places",
    "places_for",
    "plain_copy",
    "prepared",
    "protocol_with_header_timeout",
    "read_again",
    "read_end",
    "readable_schema",
    "recovery_of",
    "refuse_framework_tool",
    "refuse_in_workflow",
    "refuse_too_many",
    "register_adapter",
    "require_guard",
    "require_shown",
    "resolve_reference",
    "run_check",
    "same_json",
    "scope_of",
    "shown_digests",
    "stored_pause",
    "was_answered",
    "way_on",
    "weigh",
    "why_refused",
    "with_parts",
    "with_program_field",
    "with_store",
    "with_texts",
    "without_texts",
    "written_end",
]

# Where each of them lives; the imports above tell type checkers the same.
_LATE = {
    "cached_property": "cached_property",
    "data.content": "CONTENT_SCHEMA apart current places_for with_parts",
    "data.exact_integers": "integers_as_in with_texts without_texts",
    "data.json_shape": "weigh",
    "data.json_values": "canonical_json decode_json refuse_too_many",
    "data.references": "resolve_reference",
    "host.forks": "forkable_lock",
    "host.http_timeouts": "body_within protocol_with_header_timeout",
    "host.threads": "LARGE_CHARACTERS off_loop run_check",
    "host.sync": "refuse_in_workflow",
    "interrupts.interrupt": "agent_pause APPROVAL_KIND recovery_of same_json was_answered way_on why_refused",
    "observe.reporter": "heard_by",
    "options.checked_fields": "WrongTypeError not_negative",
    "options.parts": "Listing",
    "protocol.ledger": "UNKNOWN_OUTCOME_KIND outer_id_of",
    "execution.resume": "end_continuation open_continuation OpenedContinuation",
    "execution.call_context": "LatePlace TextPlace",
    "schemas.compiled": (
        "CompiledSchema JsonSchema MAX_PROBLEMS SchemaMismatch ValidatedInput clip completed path_text plain_copy"
    ),
    "schemas.json_schemas": "DictSchema readable_schema",
    "schemas.python_types": "TypeSchema",
    "schemas.type_traits": "ReadAgain is_read_once read_again",
    "source.program_input": "PROGRAM_FIELDS with_program_field",
    "stores.agent_runs": (
        "agent_run AgentRecords AgentRun joined_programs read_end require_shown ResumeWith shown_digests "
        "stored_pause ToolForm ToolForms written_end"
    ),
    "stores.answers": "edited_input",
    "stores.durability": "StoreLike open_store with_store",
    "stores.resumer": "continuation_of require_guard",
    "stores.records": "Tenant Tenants",
    "surfaces.code_call.names": "looks_like_meta_tool",
    "surfaces.exec_wait.options": "configured",
    "surfaces.exec_wait.sources": "listed",
    "surfaces.exec_wait.stored": "scope_of",
    "surfaces.exec_wait.pair": "direct_names",
    "tools.adapters": "register_adapter",
    "tools.collecting": "refuse_framework_tool",
    "tools.tool": "can_be_called check_name ImpossibleNameError parse_summary",
    "tools.prepared": "PreparedTool prepared",
    "tools.selection": "Places Selection not_among_the_tools places",
    "tools.tool_schemas": "Compile FrameworkSchema InferredOutput",
    "trace.failures": "log_left_out",
    "workers.pool": "check_pool",
}
__getattr__ = late_names(__name__, _LATE)
