"""A replay that takes another way says where, and quotes inputs only where nobody hides them."""

from __future__ import annotations

import pytest

from codemode.errors import CodeModeProtocolError
from codemode.protocol.invocation import LedgerReplay
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry
from codemode.protocol.messages import CallRequested

RECORDED = LedgerEntry(1, "tool", "pay", '{"token":"was"}', tool_call_id="t", outcome=Fulfilled("1"), now_ms=1)


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("request_id", [1, 2])
def test_a_replay_that_diverges_quotes_no_hidden_input(hides: bool, request_id: int):
    replay = LedgerReplay(Ledger([RECORDED], [1]), hides_inputs=hides)
    with pytest.raises(CodeModeProtocolError, match=f"replay diverged at request {request_id}: .*tool pay") as caught:
        replay.match_recorded_entry_or_raise(
            CallRequested(request_id, "tool", "pay", '{"token":"now"}', None), Ledger()
        )
    assert ("token" in caught.value.message) != hides
