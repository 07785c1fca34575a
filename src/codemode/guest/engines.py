"""Engines, each with a pristine kernel in it, for one program each. Loaded by path in worker processes.

Knows no frame. An engine that was used is neither entered nor freed again: what its program has left in it is reachable
from no other, no destructor walks through it, and its memory is given to no other program. It goes with the process.
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
KERNEL_LINES_BEFORE = 1 << 20


class Engines:
    """Makes the engines of one process, ``programs_per_worker`` at the most."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._most = config["programs_per_worker"]
        self._heap_bytes, self._stack_bytes = config["memory_limit_bytes"], config["max_stack_size_bytes"]
        self._make_context = load_engine(config["engine_path"]).Context
        self.kernel_text = _kernel_text(config["kernel"])
        self.kernel_hash = _sha256(self.kernel_text)
        self._made = 0
        self._ahead: list[Engine] = []
        self._held: list[object] = []

    def make(self) -> Engine:
        """A fresh one."""
        context = self._make_context()
        context.set_memory_limit(self._heap_bytes)
        context.set_max_stack_size(self._stack_bytes)
        kernel = context.eval("\n" * KERNEL_LINES_BEFORE + self.kernel_text)
        self._made += 1
        if self._made == self._most:
            self.kernel_text = ""  # memory in every fork
        return context, kernel, 0

    @property
    def is_complete(self) -> bool:
        """Whether there are as many as there may be."""
        return self._made >= self._most

    def make_ahead(self, worker: Any, pack: Pack) -> None:
        """Make one for a program to come, rehearsed as the first is, and packed."""
        current, engine = worker.engine, self.make()
        worker.use(engine)
        worker.rehearse_programs()
        worker.use(current)
        self._ahead.append(self.packed(engine, pack))

    def packed(self, engine: Engine, pack: Pack) -> Engine:
        """Pack the free memory of an engine that has rehearsed."""
        context, kernel, taken = engine
        held, more = pack(context)
        self._held.append(held)
        return context, kernel, taken + more

    def following(self, used: object, *, makes_more: bool) -> Engine | None:
        """One in the place of what was used, made ahead or, if it may be, now; None when there is none."""
        self._held.append(used)
        if self._ahead:
            return self._ahead.pop()
        return self.make() if makes_more and not self.is_complete else None


def load_engine(path: str) -> ModuleType:
    """The engine's C module at `path`; another module of that name elsewhere cannot win."""
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module


def _kernel_text(recipe: dict[str, Any]) -> str:
    parts: list[str] = []
    for path in recipe["paths"]:
        with open(path, encoding="utf-8", newline="") as part:  # noqa: PTH123 -- pathlib is memory in every fork
            parts.append(part.read())
    return recipe["before"] + "".join(parts) + recipe["after"]


def _sha256(text: str) -> str:
    # hashlib would load OpenSSL, and every fork pays for what the zygote has loaded.
    module = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    return module.sha256(text.encode("utf-8")).hexdigest()
