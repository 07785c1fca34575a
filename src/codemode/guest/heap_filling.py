"""Packs the free memory of an engine after its warm-up. The zygote loads it by path.

A worker shares its memory until it writes to it, and each page that it writes to first has to be copied. An engine
takes small values from arenas of about a page, each with blocks of one size, and uses an arena with free blocks before
it makes another. After the kernel and the warm-up, two dozen sizes have free blocks in a hundred arenas, all over the
heap, and every program would write to most of those. Packed, each size has one arena that is nearly empty and is used
first, and these arenas lie one behind the other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from typing import Any

# A string takes its length and 33 bytes, rounded up to one of the engine's sizes. Each round takes as many of each size
# as an arena has blocks. The first fills the free blocks. The second and third fill a new arena, except that the last
# value of the second takes the last block that was free before and stays there. The engine first uses an arena that has
# just stopped being full, and first reuses the block that was freed last: therefore the values of the first round are
# freed before the rest.
_FILL_SCRIPT = """(() => {
  "use strict";
  const SIZES = [SIZES], lists = SIZES.map(() => []), kept = [];
  const count = (at) => 4056 / SIZES[at] | 0;
  for (let round = 0; round < 3; round++)
    for (let at = 0; at < SIZES.length; at++) {
      const list = lists[at];
      for (let n = count(at); n > 0; n--) list[list.length] = "x".repeat(SIZES[at] - 33);
      if (round === 1) kept[at] = list[list.length - 1];
    }
  for (let at = 0; at < SIZES.length; at++) lists[at].fill(0, 0, count(at));
  for (let at = 0; at < SIZES.length; at++)
    for (let n = lists[at].length - 1; n >= count(at); n--) lists[at][n] = 0;
  return kept;
})()""".replace("[SIZES]", str([*range(40, 128, 8), *range(128, 256, 16), *range(256, 513, 32)]))


def fill_free_heap(context: Any) -> tuple[object, int]:
    """Return what keeps the arenas, to be held as long as the engine is used, and how many bytes of its limit it takes.

    Nothing in the engine leads to it.
    """
    before = context.memory()["malloc_size"]
    fillers = context.eval(_FILL_SCRIPT)
    return fillers, context.memory()["malloc_size"] - before
