"""The profile of `codemode.run`: its program is an ES module, its tools are imported, its errors are classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...profile import GuestFace, HostErrors, Profile, StaticRules, Words
from .limits import SHOWN_NAMES, RunLimits
from .schemas_shown import OUTER_TOOL

NAME = "modules"
_ANALYSIS_MS = 1000
GLOBALS = ("console", "URL", "URLSearchParams", "TextEncoder", "TextDecoder", "setTimeout", "clearTimeout")
_FACE = GuestFace(wrapper="module", globals=GLOBALS, console="stable", limit_names=SHOWN_NAMES, stops_itself=True)
_RULES = StaticRules(checks_tools=False, analysis_ms=_ANALYSIS_MS)


def profile_of(limits: RunLimits, words: Words) -> Profile:
    """Return the profile of a run with these limits, which a pause of it keeps."""
    return Profile(
        name=NAME,
        outer_tool=OUTER_TOOL,
        guest=_FACE,
        request_kinds=frozenset({"tool", "catalog", "timer"}),
        limits=limits.policy(),
        static_rules=_RULES,
        host_errors=HostErrors(in_spans=False, words=words),
        unawaited="abandon",
        tells_of_runs=True,
        parameters=limits.differing(),
        restored=partial(_restored, words=words),
    )


def _restored(parameters: Mapping[str, Any], words: Words) -> Profile:
    return profile_of(RunLimits.of(parameters), words)
