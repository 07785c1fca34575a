"""Hold the settings of one invocation: limits, identity, profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from ..options.parts import ExecutionPolicy
from ..profile import SurfaceSettings
from ..records import record
from .messages import PartiallyStrippedProgram, RunModule, RunProgram
from .references import get_content_tag


@record
class InvocationSettings:
    """Everything but its program that an invocation depends on. Options mark sent and recorded ``limits``."""

    outer_tool_call_id: str
    salt: str  # makes the request ids of this invocation unique
    seed: str
    started_ms: int
    limits: ExecutionPolicy
    profile: SurfaceSettings
    fetch: bool = False  # whether the guest has fetch
    state: bool = False  # whether the guest has state
    language_names: Sequence[str] = ()  # tools whose names clash with JavaScript's own
    invocation_data_json: str | None = None  # canonical JSON of an object for this invocation alone
    hides_inputs: bool = False  # whether inputs are displayed only after the host's pipeline
    source: str | None = None  # the program as it was sent, if it is not the text that runs

    @property
    def has_rich_values(self) -> bool:
        """True if values cross as tagged JSON."""
        return self.limits.values == "rich"

    @property
    def has_tagged_result(self) -> bool:
        """True if results are tagged JSON; cut results are plain JSON."""
        return self.has_rich_values and self.profile.guest.result != "sanitised"

    def with_invocation_data(self, invocation_data_json: str) -> InvocationSettings:
        """Return the settings with this invocation data. No `replace`: this runs for each module, and must be fast."""
        return InvocationSettings(
            self.outer_tool_call_id,
            self.salt,
            self.seed,
            self.started_ms,
            self.limits,
            self.profile,
            self.fetch,
            self.state,
            self.language_names,
            invocation_data_json,
            self.hides_inputs,
            self.source,
        )

    def make_start_message(
        self, js: str, draft: PartiallyStrippedProgram | None, compile_only: bool, reports_locations: bool
    ) -> RunProgram | RunModule:
        """Return the message that starts a program."""
        fields, invocation_data_json = (
            self.to_worker_fields(reports_locations=reports_locations),
            self.invocation_data_json,
        )
        if self.profile.guest.wrapper == "module":
            return RunModule(js, fields, invocation_data_json)
        return RunProgram(js, fields, draft, invocation_data_json, compile_only)

    def to_worker_fields(self, *, reports_locations: bool = False) -> dict[str, Any]:
        """Return the fields for the worker, without the invocation data, which are sent as text."""
        limits, guest = self.limits, self.profile.guest
        fields: dict[str, Any] = {"seed": self.seed, "now_ms": self.started_ms, "wrapper": guest.wrapper}
        fields["globals"] = [*guest.globals, *(["fetch"] if self.fetch else []), *(["state"] if self.state else [])]
        fields |= {**limits.worker_options, "places": True} if reports_locations else limits.worker_options
        fields |= {"values": "rich"} if limits.values == "rich" else {}
        if self.language_names:
            fields["language_names"] = list(self.language_names)
        if guest.shadowed:
            fields["shadowed"] = list(guest.shadowed)
        if guest.result == "sanitised":
            fields["result"] = {"depth": guest.max_result_depth, "properties": guest.max_result_properties}
        elif guest.result == "texts":
            fields["says_in_text"] = True
        if guest.console != "plain":
            fields["console"] = guest.console
        if guest.limit_names:
            fields["limit_names"] = dict(guest.limit_names)
        if guest.stops_itself:
            fields["stops"] = [limits.timeout_ms, limits.timeout_includes_tools]
        if self.profile.unawaited == "drain":
            fields["drains"] = True
        if self.profile.output is not None:
            fields["max_output_bytes"] = self.profile.output.max_bytes
        if self.profile.has_content:
            fields["content"] = get_content_tag(self.salt)
        if (rules := self.profile.sidecar) is not None:
            fields["sidecar"] = {"resolved": rules.max_resolved_bytes, "composites": rules.allow_composites}
        return fields


def get_analysis_mode(profile: SurfaceSettings) -> int:
    """Return the analysis mode of programs of a profile, see `AnalyseProgram`."""
    if profile.guest.wrapper == "module":
        return 2
    if profile.takes_input:
        return 3
    return 0 if profile.static_rules.runs_unanalysed else 1


@cache
def list_recorded_limit_names(policy: type[ExecutionPolicy]) -> tuple[str, ...]:
    """Return the names of limits that a continuation records."""
    return tuple(option.name for option in fields(policy) if option.metadata.get("is_signed"))
