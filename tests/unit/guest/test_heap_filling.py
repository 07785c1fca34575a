"""What a zygote does to the free memory of its engines, so that a program writes to few pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from codemode.guest import heap_filling
from codemode.guest.engines import EnginePool, load_engine_module
from codemode.guest.worker import Worker
from codemode.workers.image import GUEST_RUNTIME, find_engine

LIMIT = 8 << 20
ROUNDED = 256  # bytes by which the C library's blocks may be larger than what was asked for
# Values of many sizes, some of which are freed: so a few arenas of each size have a free block, all over the heap.
SCATTERED = """(() => {
  const values = [];
  for (let n = 0; n < 12000; n++) values.push("x".repeat(7 + n * 7919 % 470));
  globalThis.scattered = values.filter((_, at) => at % 127 !== 0);
})()"""
FORKED = """
import os, resource, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
engines, heap_filling = ModuleType("engines"), ModuleType("heap_filling")
SourceFileLoader("engines", sys.argv[1]).exec_module(engines)
SourceFileLoader("heap_filling", sys.argv[2]).exec_module(heap_filling)
context = engines.load_engine_module(sys.argv[3]).Context()
context.eval(sys.argv[4])
if "pack" in sys.argv:
    held = heap_filling.fill_free_heap(context)
context.eval("1")
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
context.eval('for (let n = 7; n < 479; n += 2) globalThis.taken = ["x".repeat(n), globalThis.taken]')
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
REACHABLE = """(() => {
  const seen = new Set(), waiting = [globalThis];
  for (let value; (value = waiting.pop()) !== undefined;) {
    if (seen.has(value)) continue;
    seen.add(value);
    for (const key of Reflect.ownKeys(value)) {
      const { value: held, get, set } = Object.getOwnPropertyDescriptor(value, key);
      for (const next of [held, get, set, Object.getPrototypeOf(value)])
        if ((typeof next === "object" && next !== null) || typeof next === "function") waiting.push(next);
    }
  }
  return seen.size;
})()"""
LARGEST = """(() => {
  let fits = 0, not = 1 << 30;
  while (not - fits > 1) {
    const size = fits + not >> 1;
    try { new ArrayBuffer(size); fits = size; } catch { not = size; }
  }
  return fits;
})()"""


def context_of_scattered_memory() -> Any:
    context = load_engine_module(find_engine()[0]).Context()
    context.eval(SCATTERED)
    return context


def pages(*more: str) -> int:
    paths = [str(Path(heap_filling.__file__).with_name("engines.py")), heap_filling.__file__, find_engine()[0]]
    command = [sys.executable, "-I", "-S", "-c", FORKED, *paths, SCATTERED, *more]
    return int(subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only a zygote packs")
def test_a_fork_writes_to_fewer_pages():
    assert pages("pack") < 0.8 * pages()


def test_nothing_in_the_engine_leads_to_what_is_held():
    context = context_of_scattered_memory()
    before = context.eval(REACHABLE)
    held, _ = heap_filling.fill_free_heap(context)
    assert held is not None
    assert context.eval(REACHABLE) == before


def test_a_program_has_the_memory_that_it_has_without():
    context = context_of_scattered_memory()
    context.set_memory_limit(LIMIT)
    before = context.eval(LARGEST)
    _held, taken = heap_filling.fill_free_heap(context)
    assert ROUNDED < taken < 1 << 14
    assert context.eval(LARGEST) == pytest.approx(before - taken, abs=ROUNDED)
    context.set_memory_limit(LIMIT + taken)
    assert context.eval(LARGEST) == pytest.approx(before, abs=ROUNDED)


def test_the_limit_of_a_program_leaves_out_what_is_taken():
    context = Mock()
    worker: Any = object.__new__(Worker)
    worker._turn_runner_class = Mock(return_value=Mock(run_turn=Mock(return_value=("V{}", True))))
    worker.may_hold_long_integers = Mock(return_value=False)
    worker.use_engine((context, None, 6168))
    worker._run_program(b"R" + bytes.fromhex("00800000 00100000 00000000 00") + b"{}", is_module=False)
    context.set_memory_limit.assert_called_once_with(LIMIT + 6168)


def test_what_is_held_stays_and_what_is_taken_adds_up():
    engines: Any = object.__new__(EnginePool)
    engines._retained = holding = []
    held = object()
    assert engines.fill_engine_heap(("context", "kernel", 5), Mock(return_value=(held, 7))) == ("context", "kernel", 12)
    assert holding == [held]


def test_the_cells_of_all_variables_that_programs_write_lie_together():
    """The function that comes first names every variable of the kernel that is written."""
    text = GUEST_RUNTIME.read_text()
    first = re.search(r"const allocateCellsTogether = \(\) => \[(.*?)\];", text, re.DOTALL)
    assert first is not None
    assert "=>" not in text[: first.start()]
    declared = re.findall(r"^let (.*?);", text, re.MULTILINE)
    names = {match for line in declared for match in re.findall(r"(?:^|, )(\w+)(?= =|,|$)", line)}
    assert set(re.findall(r"\w+", first[1])) == names


def test_no_name_of_the_kernel_is_declared_twice():
    """A worker would not notice: it evaluates `const` and `let` as `var`."""
    load_engine_module(find_engine()[0]).Context().eval(GUEST_RUNTIME.read_text())
