"""Creates engines with a pristine kernel, for one program each.

Loaded by path in worker processes. Knows no frame. A used engine is neither entered nor freed again: no other engine
reaches its program's data, no destructor walks through them, and no other program gets its memory. It ends with the
process.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Engine = tuple[Any, Any, int]  # context, kernel function, bytes of the engine's limit that no program has taken
    Pack = Callable[[Any], tuple[object, int]]

# Kernel stack frames get line numbers that no guest source reaches.
LINES_BEFORE_RUNTIME = 1 << 20


class EnginePool:
    """Makes the engines of one process, ``programs_per_worker`` at the most."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._max_engines = config["programs_per_worker"]
        self._heap_bytes, self._stack_bytes = config["memory_limit_bytes"], config["max_stack_size_bytes"]
        self._make_context = load_engine_module(config["engine_path"]).Context
        source = _read_runtime_source(config["kernel"])
        self.runtime_sha256 = _compute_sha256(source)
        # The engine compares a name with each `const` and `let` around it, and looks a `var` up in a hash table: a
        # third less time for a scope of some 700 names.
        self.runtime_text = source.replace("\nconst ", "\nvar ").replace("\nlet ", "\nvar ")
        self._made_count = 0
        self._spare_engines: list[Engine] = []
        self._retained: list[object] = []

    def make_engine_and_count_limit(self) -> Engine:
        """Create an engine with a fresh guest runtime."""
        context = self._make_context()
        context.set_memory_limit(self._heap_bytes)
        context.set_max_stack_size(self._stack_bytes)
        runtime = context.eval("\n" * LINES_BEFORE_RUNTIME + self.runtime_text)
        self._made_count += 1
        if self._made_count == self._max_engines:
            self.runtime_text = ""  # memory in every fork
        return context, runtime, 0

    @property
    def has_made_all_engines(self) -> bool:
        """True once the process has made all engines that it may have."""
        return self._made_count >= self._max_engines

    def make_spare_engine(self, worker: Any, fill_free_heap: Pack) -> None:
        """Make a spare engine, warmed up and with its free heap filled."""
        current, engine = worker.engine, self.make_engine_and_count_limit()
        worker.use_engine(engine)
        worker.warm_up_engine()
        worker.use_engine(current)
        self._spare_engines.append(self.fill_engine_heap(engine, fill_free_heap))

    def fill_engine_heap(self, engine: Engine, fill_free_heap: Pack) -> Engine:
        """Fill the free heap of an engine that was warmed up."""
        context, runtime, taken_bytes = engine
        filler, filler_bytes = fill_free_heap(context)
        self._retained.append(filler)
        return context, runtime, taken_bytes + filler_bytes

    def take_or_make_next_engine(self, used_engine: object, *, makes_more: bool) -> Engine | None:
        """Return a spare engine, or one created now if that is allowed; else None."""
        self._retained.append(used_engine)
        if self._spare_engines:
            return self._spare_engines.pop()
        return self.make_engine_and_count_limit() if makes_more and not self.has_made_all_engines else None


def load_engine_module(path: str) -> ModuleType:
    """The engine's C module at `path`; another module of that name elsewhere cannot win."""
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module


def _read_runtime_source(sources: dict[str, Any]) -> str:
    parts: list[str] = []
    for path in sources["paths"]:
        with open(path, encoding="utf-8", newline="") as file:  # noqa: PTH123 -- pathlib is memory in every fork
            parts.append(file.read())
    return sources["before"] + "".join(parts) + sources["after"]


def _compute_sha256(text: str) -> str:
    # hashlib would load OpenSSL, and every fork pays for what the zygote has loaded.
    module = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    return module.sha256(text.encode("utf-8")).hexdigest()
