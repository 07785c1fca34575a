"""The settings of one invocation: limits, identity, how it stands in its guest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from ..options.parts import ExecutionPolicy
from ..profile import Profile
from ..records import record
from .messages import Draft, RunModule, RunProgram
from .references import tag_of


@record
class Settings:
    """What an invocation depends on beside its program. What of ``limits`` is told or kept, its own fields say."""

    outer_tool_call_id: str
    salt: str  # what tells this invocation's request ids from those of others
    seed: str
    started_ms: int
    limits: ExecutionPolicy
    profile: Profile
    fetch: bool = False  # whether the guest has it
    state: bool = False  # likewise
    language_names: Sequence[str] = ()  # tools that are called by a name that the language itself reads
    given_json: str | None = None  # what this invocation alone was given, canonical JSON of an object
    hides_inputs: bool = False  # whether nobody is shown an input but as the host's pipeline has let it through
    source: str | None = None  # the program as it was sent, where that is not the text that runs

    @property
    def has_rich_values(self) -> bool:
        """True where values cross as tagged JSON."""
        return self.limits.values == "rich"

    @property
    def has_tagged_result(self) -> bool:
        """True where a result is tagged JSON: what is cut of one is cut of JSON."""
        return self.has_rich_values and self.profile.guest.result != "sanitised"

    def giving(self, given_json: str) -> Settings:
        """Return them with what the invocation was given. By hand: each run of a module does it."""
        return Settings(
            self.outer_tool_call_id,
            self.salt,
            self.seed,
            self.started_ms,
            self.limits,
            self.profile,
            self.fetch,
            self.state,
            self.language_names,
            given_json,
            self.hides_inputs,
            self.source,
        )

    def program(self, js: str, draft: Draft | None, compile_only: bool, with_places: bool) -> RunProgram | RunModule:
        """Return the message that starts a program under these settings."""
        told, given_json = self.for_worker(with_places=with_places), self.given_json
        if self.profile.guest.is_module:
            return RunModule(js, told, given_json)
        return RunProgram(js, told, draft, given_json, compile_only)

    def for_worker(self, *, with_places: bool = False) -> dict[str, Any]:
        """Return the part that the worker is told, but for what was given, which travels as the text that it is."""
        limits, face = self.limits, self.profile.guest
        told: dict[str, Any] = {"seed": self.seed, "now_ms": self.started_ms, "wrapper": face.wrapper}
        told["globals"] = [*face.globals, *(["fetch"] if self.fetch else []), *(["state"] if self.state else [])]
        told |= {**limits.told, "places": True} if with_places else limits.told
        told |= {"values": "rich"} if limits.values == "rich" else {}
        if self.language_names:
            told["language_names"] = list(self.language_names)
        if face.shadowed:
            told["shadowed"] = list(face.shadowed)
        if face.result == "sanitised":
            told["result"] = {"depth": face.max_result_depth, "properties": face.max_result_properties}
        elif face.result == "texts":
            told["says_in_text"] = True
        if face.console != "plain":
            told["console"] = face.console
        if face.limit_names:
            told["limit_names"] = dict(face.limit_names)
        if face.stops_itself:
            told["stops"] = [limits.timeout_ms, limits.clock == "wall"]
        if self.profile.unawaited == "drain":
            told["drains"] = True
        if self.profile.output is not None:
            told["max_output_bytes"] = self.profile.output.max_bytes
        if self.profile.has_content:
            told["content"] = tag_of(self.salt)
        if (rules := self.profile.sidecar) is not None:
            told["sidecar"] = {"resolved": rules.max_resolved_bytes, "composites": rules.allow_composites}
        return told


def analysis_face(profile: Profile) -> int:
    """Return how a worker is to analyse programs of a profile, as `AnalyseProgram` has it."""
    if profile.guest.is_module:
        return 2
    return 0 if profile.static_rules.runs_unanalysed else 1


@cache
def kept_limits(policy: type[ExecutionPolicy]) -> tuple[str, ...]:
    """Name the limits that a continuation keeps."""
    return tuple(option.name for option in fields(policy) if option.metadata.get("is_kept"))
