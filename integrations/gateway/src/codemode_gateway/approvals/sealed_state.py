"""The request state of a call that waits: sealed, compressed, signed, and bound to its principal and its program.

What comes back is hostile: nothing of it is read before its signature is known to be right, and that one does not fit
another principal, another program or other keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from codemode.continuations.sealing import pack, unpack
from codemode.data.json_shape import weigh
from codemode.data.json_values import canonical_json, decode_json
from codemode.data.narrowing import is_object
from codemode.errors import CodeModeProtocolError
from codemode.host.clock import now_ms
from codemode.host.threads import run_check
from codemode.options.parts import ContinuationOptions

from ..gateway.principals import Principal

MAX_STATE_CHARACTERS = 256 << 10
"""A longer one stays in the store, and only its name goes to the client."""
_ENOUGH = 1 << 20


class SealedState:
    """Seals what a call goes on from, and opens it, for one principal, with the keys of continuations."""

    def __init__(self, options: ContinuationOptions, principal: Principal) -> None:
        self._options = replace(options, seal=True, compress=True)
        self._principal = principal

    async def sealed(self, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Return the text of a state, for a call with these arguments."""

        def seal() -> str:
            packed = pack([json.dumps(state)], self._options, now_ms(), self._binding(arguments))
            return _written(packed)

        return await run_check(weigh(state, _ENOUGH), seal)

    async def opened(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state in a text. Raises `CodeModeProtocolError` for one that this gateway did not make for this.

        This principal, this program, and these keys.
        """
        if len(text) > MAX_STATE_CHARACTERS:
            raise CodeModeProtocolError("the request state is longer than any of this gateway")
        return await run_check(len(text), lambda: self._open(text, arguments))

    def _open(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            packed = decode_json(text)
        except ValueError as error:
            raise CodeModeProtocolError("the request state is none of this gateway") from error
        # One state is one text: whatever was changed in it is refused.
        if not is_object(packed) or _written(packed) != text:
            raise CodeModeProtocolError("the request state is none of this gateway")
        texts, _ = unpack(packed, self._options, now_ms(), self._binding(arguments))
        state = decode_json("".join(texts))
        if not is_object(state):
            raise CodeModeProtocolError("the request state is none of this gateway")
        return state

    def _binding(self, arguments: Mapping[str, Any]) -> str:
        asked = {name: arguments.get(name) for name in ("code", "resume")}
        said = canonical_json(["request state", self._principal.id, asked])
        return "request state " + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()


def _written(packed: Mapping[str, Any]) -> str:
    return json.dumps(packed, separators=(",", ":"))
