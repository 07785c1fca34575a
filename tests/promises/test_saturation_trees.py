"""Every tree of invocations ends, whatever the maximum is."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from codemode.workers import lease
from codemode.workers.lease import MAX_EXTRA_SLOTS, InvocationSlot, SlotQueue


@dataclass(frozen=True)
class Tree:
    """One invocation: where it runs, and what its calls run, one after another or at once."""

    place: int
    at_once: bool
    inside: tuple[Tree, ...]


def trees() -> st.SearchStrategy[Tree]:
    def around(inside: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.builds(Tree, st.integers(0, 3), st.booleans(), st.lists(inside, max_size=3).map(tuple))

    tree = st.builds(Tree, st.integers(0, 3), st.just(value=False), st.just(()))
    for _ in range(MAX_EXTRA_SLOTS):
        tree = st.one_of(tree, around(tree))
    return tree


class Slots:
    """Two whole pools; places 2 and 3 are shares of the first, whose slots are taken before its own."""

    def __init__(self, maxima: list[int], memory: list[int]) -> None:
        self._memory = memory
        self.all = [SlotQueue(lambda active, _memory, most=most: self._most(active, most)) for most in maxima]

    def of(self, place: int) -> list[SlotQueue]:
        return [self.all[place], self.all[0]] if place >= 2 else [self.all[place]]

    def _most(self, active: int, most: int) -> int:
        # A limit by memory moves: it never asks for fewer than there are.
        moved = self._memory[0] if self._memory else 0
        self._memory[:] = self._memory[1:] + self._memory[:1]
        return max(1, min(most, active + moved)) if self._memory else most


@settings(deadline=None)
@given(
    st.lists(trees(), min_size=1, max_size=8),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.lists(st.integers(0, 2), max_size=3),
)
def test_no_tree_of_invocations_ever_waits_for_itself(forest: list[Tree], maxima: list[int], memory: list[int]):
    slots = Slots(maxima, memory)

    async def invoke(tree: Tree) -> None:
        held: list[SlotQueue] = []
        for admission in slots.of(tree.place):
            await admission.acquire(1, None, lease.compute_nesting_depth())
            held.append(admission)
            assert admission.active <= max(maxima) + MAX_EXTRA_SLOTS
        place = InvocationSlot()
        context = contextvars.copy_context()
        context.run(place.make_current)
        await asyncio.sleep(0)
        work = [asyncio.get_running_loop().create_task(invoke(one), context=context.copy()) for one in tree.inside]
        for one in [asyncio.gather(*work)] if tree.at_once else work:
            await one
        place.is_held = False
        for admission in held:
            admission.release()

    async def scenario() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(invoke(tree) for tree in forest))

    asyncio.run(scenario())
    assert [one.active for one in slots.all] == [0] * 4
    assert [one._extra_slots for one in slots.all] == [0] * 4
