"""The files that a worker process is made of: engine, kernel and parser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CodeModeWorkerError
from ..records import record

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def recorded_engine(distribution: str, module: str) -> tuple[str, str] | None:
    """Return path and version as the distribution's own record has them, as importlib.metadata would find them.

    None for all that is not one folder of metadata in a folder of `sys.path`: that is for importlib.metadata.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    normal = distribution.replace("-", "_")
    try:
        for entry in sys.path:
            found = [name for name in _listed(entry) if _distribution_of(name) == normal]
            if found:
                return _read(Path(entry or "."), found, module)
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _listed(entry: str) -> list[str]:
    try:
        return os.listdir(entry or ".")  # noqa: PTH208 - of bare names, of which there are many
    except FileNotFoundError:
        return []


def _distribution_of(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if kind not in ("dist-info", "egg-info"):
        return ""
    return stem.partition("-")[0].lower().replace(".", "_")


def _read(folder: Path, found: list[str], module: str) -> tuple[str, str] | None:
    if len(found) != 1 or not found[0].endswith(".dist-info"):
        return None
    head = (folder / found[0] / "METADATA").read_text(encoding="utf-8").partition("\n\n")[0]
    version = [line.removeprefix("Version: ") for line in head.splitlines() if line.startswith("Version: ")]
    for line in (folder / found[0] / "RECORD").read_text(encoding="utf-8").splitlines():
        name = line.partition(",")[0]
        if name.startswith(f"{module}.") and name.endswith((".so", ".pyd")) and version:
            path = (folder / name).resolve()
            return (str(path), version[0].strip()) if path.is_file() else None
    return None


ENGINE_DISTRIBUTION = "quickjs-ng"
PARSER_PACKAGES = ("tree_sitter", "tree_sitter_typescript")
DEFAULT_MEMORY_LIMIT_BYTES = 64 << 20
DEFAULT_MAX_STACK_SIZE_BYTES = 512 << 10

_GUEST = Path(__file__).parent.parent / "guest"
ANALYSER_PATH = str(_GUEST / "analysis" / "analyse.py")
# In the order in which they are evaluated.
_KERNEL_PARTS = (
    "intrinsics", "json", "content", "locale", "sidecar", "rich", "powers", "determinism", "text", "memory", "errors",
    "places", "bridge", "surface", "utf8", "fetch", "code_call", "notices", "result", "encoding", "percent",
    "url_hosts", "url_parse", "url", "url_params", "module_errors", "stable_text", "timers", "output", "calls",
    "discovery", "namespaces", "modules", "saved", "exec_wait", "state", "faces", "harden", "entry",
)  # fmt: skip


@record
class Kernel:
    """The files whose texts, joined between ``before`` and ``after``, evaluate to the kernel function."""

    paths: tuple[str, ...]
    before: str = ""
    after: str = ""

    def text(self) -> str:
        """The kernel text as a worker evaluates it."""
        return self.before + "".join(Path(path).read_bytes().decode() for path in self.paths) + self.after

    def sha256(self) -> str:
        """What a worker's hello must name as its kernel."""
        import hashlib

        return hashlib.sha256(self.text().encode()).hexdigest()


KERNEL = Kernel(
    paths=tuple(str(_GUEST / "kernel" / f"{part}.js") for part in _KERNEL_PARTS),
    before='(function () {\n"use strict";\n',
    after="})()\n",
)


@record
class WorkerImage:
    """Paths and versions. ``analyser_path`` None: a worker without a parser. ``command`` empty: this interpreter."""

    engine_path: str
    engine_version: str
    kernel: Kernel
    analyser_path: str | None
    site_paths: tuple[str, ...]
    command: tuple[str, ...] = ()

    @classmethod
    def installed(cls, kernel: Kernel, command: tuple[str, ...] = ()) -> WorkerImage:
        """From the installed distributions. Raises `CodeModeWorkerError` when one is missing."""
        engine_path, engine_version = engine_location()
        return cls(engine_path, engine_version, kernel, ANALYSER_PATH, parser_site_paths(), command)

    def configuration(self, **more: object) -> str:
        """The ASCII JSON that a worker process gets as its argument."""
        analyser = {"path": self.analyser_path, "site_paths": self.site_paths}
        values: Mapping[str, Any] = {
            "engine_path": self.engine_path,
            "engine_version": self.engine_version,
            "kernel": {
                "paths": self.kernel.paths,
                "before": self.kernel.before,
                "after": self.kernel.after,
            },
            "analyser": analyser if self.analyser_path is not None else None,
            "lock_path": str(_GUEST / "lock.py"),
            "lockdown_path": str(_GUEST / "lockdown_linux.py"),
            "seccomp_filter_path": str(_GUEST / "seccomp_filter.py"),
            "layers_path": str(_GUEST / "layers.py"),
            "long_integers_path": str(_GUEST / "long_integers.py"),
            "rehearsal_path": str(_GUEST / "rehearsal.py"),
            "asking_path": str(_GUEST / "asking.py"),
            "turns_path": str(_GUEST / "turns.py"),
            "engines_path": str(_GUEST / "engines.py"),
            "between_path": str(_GUEST / "between.py"),
            "programs_per_worker": 1,
            "memory_limit_bytes": DEFAULT_MEMORY_LIMIT_BYTES,
            "max_stack_size_bytes": DEFAULT_MAX_STACK_SIZE_BYTES,
            **more,
        }
        return json.dumps(values)


_version: str | None = None


def engine_version() -> str:
    """Version of the engine's distribution, as first found. Raises `CodeModeWorkerError` when it is missing."""
    return _version or engine_location()[1]


def engine_version_is_known() -> bool:
    """True when `engine_version` reads no file."""
    return _version is not None


def engine_location() -> tuple[str, str]:
    """Path of the engine's C module and version of its distribution.

    Taken from the distribution's own record: the archived ``quickjs`` package installs a module of the same name.
    Raises `CodeModeWorkerError` when the distribution or the file is missing.
    """
    global _version  # noqa: PLW0603 - one engine for the process
    if recorded := recorded_engine(ENGINE_DISTRIBUTION, "_quickjs"):
        _version = _version or recorded[1]
        return recorded
    engine = _engine_distribution()
    for file in engine.files or ():
        if file.name.startswith("_quickjs.") and file.suffix in (".so", ".pyd"):
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                _version = _version or engine.version
                return str(path), engine.version
    raise CodeModeWorkerError(
        f"the installed {ENGINE_DISTRIBUTION} {engine.version} has no engine module: reinstall it"
    )


def _engine_distribution() -> Distribution:
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


def parser_site_paths() -> tuple[str, ...]:
    """The directories that the parser's packages are imported from."""
    return tuple(dict.fromkeys(_parent_directory(package) for package in PARSER_PACKAGES))


def _parent_directory(package: str) -> str:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        raise CodeModeWorkerError(f"the TypeScript parser is not installed: pip install {name}")
    return str(Path(next(iter(spec.submodule_search_locations))).parent)
