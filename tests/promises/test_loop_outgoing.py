"""What goes to a worker is written when its turn comes, and a long message piece by piece."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pausing import PAUSING, Spy, go_on, start
from suite import rounds

from codemode import Tool
from codemode.protocol import framing
from codemode.protocol.framing import CHUNK_CHARACTERS, FrameDecoder
from codemode.protocol.messages import DeliverError, DeliverValue
from codemode.workers.channel import SendQueue, WorkerChannel

SENT = (
    DeliverValue(1, 1, None),
    DeliverValue(2, 1, '"\u00fc"'),
    DeliverError(3, 1, "E", "no", ""),
    *(DeliverValue(3 + n, 1, "\u00fcx" * (n * CHUNK_CHARACTERS // 3)) for n in (1, 2, 4)),
    DeliverValue(9, 1, "x" * (2 * CHUNK_CHARACTERS)),
)


@settings(deadline=None, max_examples=rounds(16, 50))
@given(
    st.lists(st.integers(0, len(SENT) - 1), max_size=8), st.lists(st.integers(1 << 12, 1 << 18), min_size=1, max_size=5)
)
def test_loop_messages_come_out_as_their_frames_however_much_is_taken(chosen, sizes):
    sent = [SENT[number] for number in chosen]
    outgoing = SendQueue()
    for message in sent:
        outgoing.append(message)
    seen, turn = bytearray(), 0
    while not outgoing.is_empty:
        taken = outgoing.peek_next_chunk()[: sizes[turn % len(sizes)]]
        seen += taken
        outgoing.drop_sent_bytes(len(taken))
        turn += 1
    assert bytes(seen) == b"".join(message.to_frame() for message in sent)
    assert len(outgoing.peek_next_chunk()) == 0


def test_loop_nothing_is_written_before_its_turn(monkeypatch):
    """Of a whole ledger that is handed in at once, one piece is in memory at a time."""
    encoded: list[int] = []
    real = framing.iter_frame_chunks

    def watched(*given: Any):
        for piece in real(*given):
            encoded.append(len(piece))
            yield piece

    monkeypatch.setattr("codemode.protocol.messages.iter_frame_chunks", watched)
    outgoing = SendQueue()
    for number in range(20):
        outgoing.append(DeliverValue(number + 1, 1, '"' + "x" * (4 << 20) + '"'))
    assert encoded == []
    outgoing.peek_next_chunk()
    assert sum(encoded) < 1000
    assert max(map(len, (outgoing.peek_next_chunk(), b""))) <= CHUNK_CHARACTERS


class Worker:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel


@pytest.mark.parametrize("hold", [True, False])
def test_loop_a_channel_sends_all_of_it_in_order(hold):
    sent = [DeliverValue(n, 1, '"' + "x" * size + '"') for n, size in enumerate((3, 2 << 20, 5, 7, 1 << 20, 9), 1)]

    async def exchanged() -> list[bytes]:
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        nothing: Any = lambda *_: None  # noqa: E731 - four callbacks that nobody calls
        worker: Any = Worker(here)
        channel = WorkerChannel(
            worker, 1 << 24, on_message=nothing, on_end=nothing, on_violation=nothing, on_failure=nothing
        )
        for message in sent:
            channel.send(message, hold=hold)
        decoder, frames = FrameDecoder(1 << 24), list[bytes]()
        while len(frames) < len(sent):
            frames += decoder.feed(await asyncio.get_running_loop().sock_recv(there, 1 << 16))
        channel.close()
        here.close()
        there.close()
        return frames

    frames = asyncio.run(asyncio.wait_for(exchanged(), 60))
    assert [frame[:1] + frame[1:] for frame in frames] == [message.to_frame()[4:] for message in sent]


def test_loop_a_worker_that_is_gone_takes_nothing_more():
    async def sent() -> bool:
        here, there = socket.socketpair()
        here.setblocking(False)
        nothing: Any = lambda *_: None  # noqa: E731 - as above
        worker: Any = Worker(here)
        channel = WorkerChannel(
            worker, 1 << 24, on_message=nothing, on_end=nothing, on_violation=nothing, on_failure=nothing
        )
        there.close()
        channel.send(DeliverValue(1, 1, "x" * (1 << 20)))
        channel.send(DeliverValue(2, 1, "1"))
        channel.close()
        here.close()
        return True

    assert asyncio.run(asyncio.wait_for(sent(), 60))


@pytest.mark.full
def test_loop_a_large_ledger_is_handed_in_again():
    async def text(value: Any) -> str:
        return "\u00fcx" * (value * 100_000)

    tools = [Tool("text", execute=text), Spy().guarded()]
    js = """
        const sizes = [];
        for (let i = 1; i < 8; i++) sizes.push((await tools.text(i)).length);
        await tools.refund(1);
        return sizes;"""
    assert go_on(start(js, tools, PAUSING), tools, {"approved": True}) == [200_000 * n for n in range(1, 8)]
