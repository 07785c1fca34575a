"""The settings of one invocation: limits, identity, profile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..profile import Profile


@dataclass(frozen=True, slots=True)
class Settings:
    """What an invocation depends on beside its program. All of it is stored in a continuation."""

    outer_tool_call_id: str
    salt: str  # what tells this invocation's request ids from those of others
    seed: str
    started_ms: int
    timeout_ms: int
    max_result_bytes: int
    max_tool_input_bytes: int
    max_bridge_requests: int
    max_in_flight_bridge_requests: int
    max_catalog_requests: int
    max_console_bytes: int
    max_ledger_bytes: int
    memory_limit_bytes: int
    max_stack_size_bytes: int
    profile: Profile
    fetch: bool = False  # whether the guest has it
    language_names: Sequence[str] = ()  # tools that are called by a name that the language itself reads
    clock: str = "wall"  # what `timeout_ms` measures: "program" leaves out what the guest waits for the host

    def for_worker(self) -> dict[str, Any]:
        """Return the part that the worker is told."""
        names = (
            "seed", "max_result_bytes", "max_tool_input_bytes", "max_bridge_requests",
            "max_in_flight_bridge_requests", "max_catalog_requests", "max_console_bytes", "memory_limit_bytes",
            "max_stack_size_bytes",
        )  # fmt: skip
        face = self.profile.guest
        told = {"now_ms": self.started_ms, **{name: getattr(self, name) for name in names}, "wrapper": face.wrapper}
        told["globals"] = [*face.globals, "fetch"] if self.fetch else [*face.globals]
        return {**told, "language_names": list(self.language_names)} if self.language_names else told
