"""A shop whose payments a journal keeps, and hosts of it that die at any operation of their journal."""

from __future__ import annotations

import asyncio

from pausing import OK, PAUSING, through_json
from recovering import UNKNOWN
from waiting import within

from codemode import CallContext, Interrupt, Tool, continue_interrupt, run_code_mode
from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryResumeGuard

JS = """
const first = await tools.pay({amount: 1});
const both = await Promise.all([tools.pay({amount: first + 1}), tools.pay({amount: first + 2})]);
return [first, ...both, await tools.pay({amount: both[0] + both[1]})];
"""
RESULT = [1, 2, 3, 5]


class Died(Exception):
    """The host is dead: what its process would have done does not happen."""


class Host:
    """A host's view of a journal: it dies after so many operations, before or after the last of them takes effect."""

    is_shared_between_processes = True

    def __init__(self, journal, *, dies_after=None, is_done=True):
        self.lease_ms = journal.lease_ms
        self._journal = journal
        self._left = dies_after
        self._is_done = is_done
        self.operations = 0

    async def _do(self, work):
        if self._left is not None and self.operations >= self._left:
            work.close()
            raise Died
        self.operations += 1
        if self._left is not None and self.operations == self._left:
            if self._is_done:
                await work
            work.close()
            raise Died
        return await work

    async def open(self, key, head, *, again=False):
        return await self._do(self._journal.open(key, head, again=again))

    async def write(self, opened, lines):
        return await self._do(self._journal.write(opened, lines))

    async def renew(self, opened):
        return await self._do(self._journal.renew(opened))

    async def end(self, opened, outcome, *, is_final):
        return await self._do(self._journal.end(opened, outcome, is_final=is_final))

    async def release(self, opened):
        return await self._do(self._journal.release(opened))


class Shop:
    """A tool that pays, and the payments that were made."""

    def __init__(self, **settings):
        self.paid = []
        self.tools = [Tool("pay", execute=self._pay, **settings)]

    async def _pay(self, value, context):
        self.paid.append(value["amount"])
        await asyncio.sleep(0)
        return value["amount"]


def options(journal, guard=None, **more):
    continuation = {"keys": "k", "conversation_id": "thread", "journal": journal, "guard": guard, **more}
    return {**PAUSING, "continuation": continuation}


async def call(journal, tools, js=JS, **more):
    return await run_code_mode(js, tools, options=options(journal, **more), call=CallContext(tool_call_id="call_1"))


async def go_on(interrupt, answers, journal, tools, **more):
    return await continue_interrupt(
        through_json(interrupt), resolutions=answers, tools=tools, options=options(journal, **more)
    )


async def to_the_end(journal, tools, answer, **more):
    """Call, and answer whatever it asks, until it gives a value. Returns it, and the names of what was asked."""
    asked = []
    result = await call(journal, tools, **more)
    while isinstance(result, Interrupt):
        asked += [request.payload["kind"] for request in result.requests]
        answers = {request.interrupt_id: answer(request) for request in result.requests}
        result = await go_on(result, answers, journal, tools, guard=MemoryResumeGuard())
    return result, asked


def paid_already(shop):
    """Answer a call of unknown outcome as somebody who looks it up."""

    def answer(request):
        amount = request.input["amount"]
        if request.payload["kind"] == UNKNOWN:
            return {"value": amount} if amount in shop.paid else {"runAgain": True}
        return OK

    return answer


def operations_of(js=JS):
    """How many operations of the journal an undisturbed run takes."""

    async def scenario():
        host, shop = Host(MemoryJournal()), Shop()
        assert await call(host, shop.tools, js) == RESULT
        return host.operations

    return within(scenario())
