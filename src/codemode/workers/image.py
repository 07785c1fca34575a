"""The files that a worker process is made of: engine, guest runtime and parser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..errors import CodeModeWorkerError
from ..records import record

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def find_engine_in_dist_info(distribution: str, module: str) -> tuple[str, str] | None:
    """Return path and version as the distribution's own record has them, as importlib.metadata would find them.

    None for all that is not one folder of metadata in a folder of `sys.path`: that is for importlib.metadata.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    normalized_name = distribution.replace("-", "_")
    try:
        for entry in sys.path:
            metadata_names = [
                name for name in _list_directory(entry) if _parse_distribution_name(name) == normalized_name
            ]
            if metadata_names:
                return _read_engine_from_dist_info(entry or ".", metadata_names, module)
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _list_directory(entry: str) -> list[str]:
    try:
        return os.listdir(entry or ".")
    except FileNotFoundError:
        return []


def _parse_distribution_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if kind not in ("dist-info", "egg-info"):
        return ""
    return stem.partition("-")[0].lower().replace(".", "_")


def _read_engine_from_dist_info(folder: str, metadata_names: list[str], module: str) -> tuple[str, str] | None:
    if len(metadata_names) != 1 or not metadata_names[0].endswith(".dist-info"):
        return None
    metadata = os.path.join(folder, metadata_names[0])
    head = _read_text(os.path.join(metadata, "METADATA")).partition("\n\n")[0]
    version = [line.removeprefix("Version: ") for line in head.splitlines() if line.startswith("Version: ")]
    for line in _read_text(os.path.join(metadata, "RECORD")).splitlines():
        name = line.partition(",")[0]
        if name.startswith(f"{module}.") and name.endswith((".so", ".pyd")) and version:
            path = os.path.realpath(os.path.join(folder, name))
            return (path, version[0].strip()) if os.path.isfile(path) else None
    return None


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


ENGINE_DISTRIBUTION = "quickjs-ng"
PARSER_PACKAGES = ("tree_sitter", "tree_sitter_typescript")
DEFAULT_MEMORY_LIMIT_BYTES = 64 << 20
DEFAULT_MAX_STACK_SIZE_BYTES = 512 << 10

_GUEST_DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "guest")
ANALYSER_PATH = os.path.join(_GUEST_DIRECTORY, "analysis", "analyse.py")
# In the order in which they are evaluated.
_RUNTIME_PARTS = (
    "intrinsics", "json", "content", "locale", "sidecar", "rich", "powers", "determinism", "text", "memory", "errors",
    "places", "bridge", "surface", "utf8", "fetch", "code_call", "notices", "result", "encoding", "percent",
    "url_hosts", "url_parse", "url", "url_params", "module_errors", "stable_text", "timers", "output", "calls",
    "discovery", "namespaces", "modules", "saved", "exec_wait", "state", "globals", "harden", "entry",
)  # fmt: skip


@record
class GuestRuntimeSource:
    """The files whose texts, joined between ``before`` and ``after``, evaluate to the runtime's function."""

    paths: tuple[str, ...]
    before: str = ""
    after: str = ""

    def read_text(self) -> str:
        """Return the guest runtime's source as a worker evaluates it."""
        parts: list[str] = []
        for path in self.paths:
            with open(path, encoding="utf-8", newline="") as file:
                parts.append(file.read())
        return self.before + "".join(parts) + self.after

    def compute_sha256(self) -> str:
        """Return the digest that a worker's hello must name."""
        import hashlib

        return hashlib.sha256(self.read_text().encode()).hexdigest()


GUEST_RUNTIME = GuestRuntimeSource(
    paths=tuple(os.path.join(_GUEST_DIRECTORY, "kernel", f"{part}.js") for part in _RUNTIME_PARTS),
    before='(function () {\n"use strict";\n',
    after="})()\n",
)


@record
class WorkerImage:
    """Paths and versions. ``analyser_path`` None: a worker without a parser. ``command`` empty: this interpreter."""

    engine_path: str
    engine_version: str
    guest_runtime: GuestRuntimeSource
    analyser_path: str | None
    site_paths: tuple[str, ...]
    command: tuple[str, ...] = ()

    @classmethod
    def from_installed(cls, guest_runtime: GuestRuntimeSource, command: tuple[str, ...] = ()) -> WorkerImage:
        """From the installed distributions. Raises `CodeModeWorkerError` when one is missing."""
        engine_path, engine_version = find_engine()
        return cls(engine_path, engine_version, guest_runtime, ANALYSER_PATH, find_parser_site_paths(), command)

    def to_configuration_json(self, **options: object) -> str:
        """The ASCII JSON that a worker process gets as its argument."""
        analyser = {"path": self.analyser_path, "site_paths": self.site_paths}
        values: Mapping[str, Any] = {
            "engine_path": self.engine_path,
            "engine_version": self.engine_version,
            "kernel": {
                "paths": self.guest_runtime.paths,
                "before": self.guest_runtime.before,
                "after": self.guest_runtime.after,
            },
            "analyser": analyser if self.analyser_path is not None else None,
            "lock_path": os.path.join(_GUEST_DIRECTORY, "lock.py"),
            "lockdown_path": os.path.join(_GUEST_DIRECTORY, "linux_lockdown.py"),
            "seccomp_filter_path": os.path.join(_GUEST_DIRECTORY, "seccomp_filter.py"),
            "layers_path": os.path.join(_GUEST_DIRECTORY, "layers.py"),
            "long_integers_path": os.path.join(_GUEST_DIRECTORY, "long_integers.py"),
            "warm_up_path": os.path.join(_GUEST_DIRECTORY, "warm_up.py"),
            "syntax_check_path": os.path.join(_GUEST_DIRECTORY, "syntax_check.py"),
            "turn_runner_path": os.path.join(_GUEST_DIRECTORY, "turn_runner.py"),
            "engines_path": os.path.join(_GUEST_DIRECTORY, "engines.py"),
            "program_reset_path": os.path.join(_GUEST_DIRECTORY, "program_reset.py"),
            "programs_per_worker": 1,
            "memory_limit_bytes": DEFAULT_MEMORY_LIMIT_BYTES,
            "max_stack_size_bytes": DEFAULT_MAX_STACK_SIZE_BYTES,
            **options,
        }
        return json.dumps(values)


_engine_version: str | None = None


def find_engine_version() -> str:
    """Version of the engine's distribution, as first found. Raises `CodeModeWorkerError` when it is missing."""
    return _engine_version or find_engine()[1]


def is_engine_version_known() -> bool:
    """True when `find_engine_version` reads no file."""
    return _engine_version is not None


def find_engine() -> tuple[str, str]:
    """Path of the engine's C module and version of its distribution.

    Taken from the distribution's own record: the archived ``quickjs`` package installs a module of the same name.
    Raises `CodeModeWorkerError` when the distribution or the file is missing.
    """
    global _engine_version  # noqa: PLW0603 - one engine for the process
    if recorded := find_engine_in_dist_info(ENGINE_DISTRIBUTION, "_quickjs"):
        _engine_version = _engine_version or recorded[1]
        return recorded
    engine = _find_engine_distribution()
    for file in engine.files or ():
        if file.name.startswith("_quickjs.") and file.suffix in (".so", ".pyd"):
            path = os.path.realpath(file.locate())
            if os.path.isfile(path):
                _engine_version = _engine_version or engine.version
                return path, engine.version
    raise CodeModeWorkerError(
        f"the installed {ENGINE_DISTRIBUTION} {engine.version} has no engine module: reinstall it"
    )


def _find_engine_distribution() -> Distribution:
    from importlib import metadata

    try:
        return metadata.distribution(ENGINE_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        # A folder that could not be listed, for want of descriptors, is remembered as an empty one.
        metadata.MetadataPathFinder().invalidate_caches()  # an instance: Python 3.11 forgot that it is a classmethod
    try:
        return metadata.distribution(ENGINE_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise CodeModeWorkerError(
            f"the JavaScript engine is not installed: pip install {ENGINE_DISTRIBUTION}"
        ) from None


def find_parser_site_paths() -> tuple[str, ...]:
    """The directories that the parser's packages are imported from."""
    return tuple(dict.fromkeys(_find_parent_directory(package) for package in PARSER_PACKAGES))


def _find_parent_directory(package: str) -> str:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        raise CodeModeWorkerError(f"the TypeScript parser is not installed: pip install {name}")
    return os.path.dirname(next(iter(spec.submodule_search_locations)))
