"""Applies the isolation layers to a worker, or to the zygote before forks. Loaded by path."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class SandboxLockdown:
    """The shared half applied, the final half assembled. `shared_layers` is what the hello will report.

    `parent_pid`: each worker dies with this process.
    """

    def __init__(self, config: dict[str, Any], parent_pid: int, load_source: Callable[[str, str], ModuleType]) -> None:
        skip = frozenset(config["skip_layers"])
        seccomp_module = load_source("seccomp_filter", config["seccomp_filter_path"])
        load_source("layers", config["layers_path"])
        self._lockdown = load_source("linux_lockdown", config["lockdown_path"])
        try:
            filter_program = seccomp_module.assemble_filter(os.uname().machine, musl=not _is_glibc())
        except OSError as error:
            filter_program = error
        self._required = config["isolation_required"]
        self._final_lockdown = self._lockdown.FinalLockdown(filter_program, parent_pid, skip)
        shared_report = self._lockdown.apply_shared_lockdown(skip)
        self.shared_layers = {**self._final_lockdown.build_expected_report(), **shared_report}

    def describe_missing_layers(self, layers: dict[str, str]) -> str | None:
        """Why this process may not run programs, when a required layer is not in force in `layers`."""
        missing: list[str] = self._lockdown.find_missing_required_layers(layers) if self._required else []
        return "isolation layers not in force: " + ", ".join(missing) if missing else None

    def apply_final_layers_and_get_refusals(self, channel_fd: int) -> dict[str, str]:
        """Apply the final half; the layers that differ from `shared_layers`."""
        return self._final_lockdown.apply(channel_fd)


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False
