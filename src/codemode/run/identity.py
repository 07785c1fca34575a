"""Names an invocation: by random numbers, or by numbers derived from what an engine that runs a step again repeats.

An outer tool call id alone identifies nothing, for models repeat ``call_1``: it takes a conversation to name it, and a
key, so that nobody can know the numbers of others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..continuations.keys import set_keys
from ..continuations.signing import KeyRing
from ..data.json_values import canonical_json
from ..options.parts import ContinuationOptions
from ..protocol.continuation import replayed_settings
from ..protocol.settings import Settings
from .call_context import CallContext

Identify = Callable[[Settings, str], Settings]
_SALT_CHARACTERS = 16
_SEED_CHARACTERS = 32
_REMARKS = ("warnings", "notes")  # in what a call brings along: what its host had to say of it


def derived_identity(
    options: ContinuationOptions,
    call: CallContext,
    brought: Mapping[str, Any] | None = None,
) -> Identify | None:
    """Return what gives the settings of a program their salt and seed; None where they stay random.

    They follow from profile, bindings, outer id, stripped program, what it is given, the settings that a replay depends
    on and the time that an engine has recorded, if one has: a model may make the same call under the same id once more,
    and what was said of the first is no answer to the second. The key is the first, which stays while keys are
    rotated: see docs/deployment.md.
    """
    if not call.tool_call_id or (options.conversation_id is None and call.conversation_id is None):
        return None
    keys = options.keys if options.keys is not None else set_keys()
    if not keys:
        return None
    key = KeyRing(keys[:1], purpose="identity").secret()
    binding = [options.conversation_id, call.conversation_id]

    def identified(settings: Settings, js: str) -> Settings:
        given_json = settings.given_json
        if options.journal is None:
            kept = replayed_settings(replace(settings, salt="", seed="", started_ms=0))
        else:
            kept = {"outer_tool_call_id": settings.outer_tool_call_id, "profile": settings.profile.name}
            given_json = _brought_json(brought)
        named = {
            "settings": kept,
            "binding": binding,
            "started_at_ms": call.started_at_ms,
            "program": _digest(js),
        }
        if given_json is not None:
            named["given"] = _digest(given_json)
        digest = hmac.new(key, canonical_json(named).encode(), hashlib.sha256).hexdigest()
        salt, rest = digest[:_SALT_CHARACTERS], digest[_SALT_CHARACTERS:]
        return replace(settings, salt=salt, seed=rest[:_SEED_CHARACTERS])

    return identified


def _brought_json(brought: Mapping[str, Any] | None) -> str | None:
    kept = {} if brought is None else {name: value for name, value in brought.items() if name not in _REMARKS}
    return canonical_json(kept) if kept else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
