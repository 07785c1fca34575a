"""What connections to servers leave behind once they are over: nothing, whichever side has ended them."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest
from census import census, left_by
from codemode_gateway import connect
from codemode_gateway.upstreams.upstream import Upstream
from mcp_servers.configured import of, quick
from suite import rounds
from waiting import WAIT_SECONDS, within

from codemode.errors import CodeModeToolError

STARTS = rounds(2, 4)
_DESCRIPTORS = Path("/dev/fd")
_BESIDE = ("mcp.client.", "mcp.shared.", "_asyncio.Task")


async def _stopped(upstream: Upstream) -> None:
    await upstream.call("echo", {"text": "x"})
    await upstream.stop()


async def _died(upstream: Upstream) -> None:
    await upstream.call("echo", {"text": "x"})
    with pytest.raises(CodeModeToolError):
        await upstream.call("die", {})


async def _never_began(upstream: Upstream) -> None:
    with pytest.raises(CodeModeToolError):
        await upstream.call("echo", {"text": "x"})
    upstream._link.allow_immediate_retry()


@pytest.mark.parametrize(
    ("modes", "one"),
    [
        pytest.param((), _stopped, id="stopped"),
        pytest.param(("unchanging",), _died, id="died", marks=pytest.mark.full),
        pytest.param(("crash",), _never_began, id="never began", marks=pytest.mark.full),
    ],
)
def test_no_start_of_a_server_leaves_anything_behind(modes, one):
    async def scenario() -> None:
        gc.freeze()  # what other tests imported is not looked at
        async with connect(of(quick(*modes))) as connected:
            upstream = connected.upstream("quick")
            await one(upstream)  # whatever is made once
            before, descriptors = census(*_BESIDE), _open_descriptors()
            for _ in range(STARTS):
                await one(upstream)
            deadline = time.monotonic() + WAIT_SECONDS
            while left := _left(before, descriptors):
                assert time.monotonic() < deadline, left
                await asyncio.sleep(0.01)  # what has ended is waited for beside the next start

    def _left(before, descriptors) -> dict[str, int]:
        more = {"descriptors": _open_descriptors() - descriptors}
        return left_by(STARTS, before, census(*_BESIDE)) | {name: n for name, n in more.items() if n >= STARTS}

    within(scenario(), 2 * WAIT_SECONDS)


def _open_descriptors() -> int:
    return len([*_DESCRIPTORS.iterdir()]) if _DESCRIPTORS.exists() else 0
