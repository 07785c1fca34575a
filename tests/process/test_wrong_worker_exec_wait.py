"""Workers that break the rules of programs that may rest: a failure with a name, and nothing is left of the run."""

from __future__ import annotations

import asyncio

import pytest
from wrong_worker_host import RESULT, WAIT_SECONDS, Host, call, says

from codemode import CallContext, create_exec_wait_tools
from codemode.testing.fake_worker import Script

DEEP = "[" * 100_000 + "]" * 100_000
VIOLATIONS: dict[str, Script] = {
    "an item of no kind": says((b"O", {"text": "x"})),
    "an item of an unknown kind": says((b"O", {"kind": "html", "text": "x"})),
    "an item that is no text": says((b"O", {"kind": "text", "text": 1})),
    "an item that is no JSON": says((b"O", {"kind": "json", "text": "{"}), (b"V", RESULT)),
    "an item that is NaN": says((b"O", {"kind": "json", "text": "NaN"}), (b"V", RESULT)),
    "an item that is 1e999": says((b"O", {"kind": "json", "text": "1e999"}), (b"V", RESULT)),
    "a yield that is 0": says((b"C", call(0, "", kind="yield"))),
    "a yield twice": says((b"C", call(1, "", kind="yield")), (b"C", call(1, "", kind="yield"))),
    "a timer that is left out": says((b"C", call(2, "", kind="timer"))),
    "a yield of an endless name": says((b"C", call(1, "x" * 100_000, kind="yield"))),
    "a flood of yields": says(*[(b"C", call(n, "", kind="yield")) for n in range(1, 20_000)]),
    "a flood of timers": says(*[(b"C", call(n, "", kind="timer", input="1")) for n in range(1, 20_000)]),
    "a flood of catalog requests": says(*[(b"C", call(n, "$search", kind="catalog")) for n in range(1, 20_000)]),
    "a deep item": says((b"O", {"kind": "json", "text": DEEP}), (b"V", RESULT)),
}
LARGE = {"maxOutputBytes": 1 << 20}


@pytest.mark.parametrize("script", VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_broken_rule_ends_the_run(host: Host, script: Script):
    pool = host.pool(script)

    async def main() -> None:
        pair = create_exec_wait_tools({"echo": host.echo}, LARGE, pool=pool)
        result = await asyncio.wait_for(
            pair.exec.execute({"code": "return 1"}, call=CallContext(conversation_id="s")), WAIT_SECONDS
        )
        assert (result["status"], result["code"]) == ("failed", "internal_error"), str(result)[:300]
        assert result["error"].startswith(("CodeModeProtocolError", "CodeModeSerializationError"))
        await pair.aclose()

    asyncio.run(main())
    assert (host.calls, pool.active) == (0, 0)
