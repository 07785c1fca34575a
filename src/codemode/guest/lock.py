"""The layers that a worker, or the zygote that it is forked from, puts between itself and all else. Loaded by path."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class Lock:
    """The shared half applied, the final half assembled. `layers` is what the hello will report.

    `parent_pid`: each worker dies with this process.
    """

    def __init__(self, config: dict[str, Any], parent_pid: int, load_source: Callable[[str, str], ModuleType]) -> None:
        skip = frozenset(config["skip_layers"])
        seccomp = load_source("seccomp_filter", config["seccomp_filter_path"])
        load_source("layers", config["layers_path"])
        self._lockdown = load_source("lockdown_linux", config["lockdown_path"])
        try:
            program = seccomp.assemble(os.uname().machine, musl=not _is_glibc())
        except OSError as error:
            program = error
        self._required = config["isolation_required"]
        self._final = self._lockdown.FinalLock(program, parent_pid, skip)
        shared = self._lockdown.lock_shared(skip)
        self.layers = {**self._final.layers(), **shared}

    def refusal(self, layers: dict[str, str]) -> str | None:
        """Why this process may not run programs, when a required layer is not in force in `layers`."""
        missing: list[str] = self._lockdown.missing_required(layers) if self._required else []
        return "isolation layers not in force: " + ", ".join(missing) if missing else None

    def close(self, channel: int) -> dict[str, str]:
        """Apply the final half; the layers that differ from `layers`."""
        return self._final.apply(channel)


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False
