"""The state machine of one invocation: its settings, of profile, options and outer call, or of what was recorded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..data.json_values import canonical_json
from ..host.clock import now_ms
from ..options.parts import CodeModeOptions
from ..profile import Profile
from ..protocol.invocation import Invocation
from ..protocol.settings import Settings
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from .answered_pause import AnsweredPause
from .call_context import OuterCall
from .identity import derived_identity

_SALT, _SEED = slice(16, 32), slice(32, None)


def invocation_of(
    kind: type[Invocation],
    profile: Profile,
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions,
    outer: OuterCall,
    answered: AnsweredPause | None,
    given: Mapping[str, Any] | None,
) -> tuple[Invocation, str]:
    """Return the machine, of this kind, and the id by which listeners know this run."""
    call = outer.call
    random = secrets.token_hex(32)
    invocation_id = "code-mode-" + random[:16]
    calls_directly = is_direct(given)
    settings = Settings(
        outer_tool_call_id=call.tool_call_id if call.tool_call_id is not None else invocation_id,
        salt=random[_SALT],
        seed=random[_SEED],
        started_ms=call.started_at_ms or now_ms(),
        limits=options.execution_policy,
        profile=_of_direct_call(profile) if calls_directly else profile,
        language_names=catalog.language_names,
        fetch="fetch" in profile.request_kinds and options.fetch_policy is not None,
        state="state" in profile.request_kinds and (options.has_state or call.state is not None),
        hides_inputs=options.pipeline.before is not None,
        # What a program is given depends on the program.
        given_json=canonical_json(given) if calls_directly else None,
    )
    if answered is None:
        identify = derived_identity(options.continuation, call, given)
        return kind(settings, identify=identify), invocation_id
    continuation = answered.continuation
    resolved = answered.answers.keys()
    machine = kind(continuation.settings(settings), recorded=continuation.ledger, resolved=resolved)
    return machine, invocation_id


def is_direct(given: Mapping[str, Any] | None) -> bool:
    """Tell whether what an invocation brings along says that it is one call without a program."""
    return given is not None and given.get("source") == "invoke"


def _of_direct_call(profile: Profile) -> Profile:
    """Return the profile for one call, whose output no script has seen: nothing is cut of it, also after a pause."""
    return replace(profile, guest=replace(profile.guest, result="json"))
