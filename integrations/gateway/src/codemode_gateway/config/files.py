"""A configuration's file as an object: bytes, text, JSON with comments or TOML. Its mistakes name the place."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from .jsonc import JsonError, read_jsonc
from .values import ConfigError

MAX_BYTES = 4 * 1024 * 1024

_REASONS = {
    errno.ENOENT: "there is no such file; make one with `codemode mcp init`, or name another with --config",
    errno.ENOTDIR: "a part of this path is a file, no folder",
    errno.EISDIR: "this is a folder; name a file in it",
    errno.EACCES: "this file may not be read; change its permissions",
    errno.ENAMETOOLONG: "this path is too long to be one",
    errno.ELOOP: "the symbolic links of this path lead in a circle",
}


def text_of(path: Path, most: int = MAX_BYTES) -> str:
    """Return the text of the file. Raises `ConfigError` where it cannot be read, is too large or is not UTF-8."""
    return decoded(content_of(path, most), path)


def content_of(path: Path, most: int) -> bytes:
    """Return the bytes of the file. Raises `ConfigError` where it cannot be read or is too large."""
    try:
        is_other = path.exists() and not path.is_file()
        content = b"" if is_other else _content(path, most + 1)
    except (OSError, ValueError) as problem:
        reason = _REASONS.get(getattr(problem, "errno", None) or 0, "this file cannot be read")
        raise ConfigError(f"{path}: {reason}") from None
    if is_other:
        raise ConfigError(f"{path}: {_REASONS[errno.EISDIR] if path.is_dir() else 'this is no regular file'}")
    if len(content) > most:
        raise ConfigError(f"{path}: this file is larger than {most:,} bytes; is it a configuration?")
    return content


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def is_there(path: Path) -> bool:
    """Return whether there is something at ``path`` that this process may see."""
    with suppress(OSError, ValueError):
        return path.exists()
    return False


def decoded(content: bytes, path: Path) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}: this file is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise ConfigError(f"{path}, line {line}: this file is not UTF-8; save it as UTF-8") from None


def object_of(text: str, path: Path) -> Mapping[str, Any]:
    """Return the object that the text says, TOML where the file's name ends so, else JSON with comments."""
    if path.suffix.lower() == ".toml":
        return _toml(text, path)
    try:
        found = read_jsonc(text)
        if found.doubts:
            raise found.doubts[0]
    except JsonError as mistake:
        raise ConfigError(f"{path}, {mistake}") from None
    if found.root.kind != "object":
        raise ConfigError(f'{path}, line 1: this must be an object, as in {{"mcpServers": {{}}}}')
    return cast("Mapping[str, Any]", found.root.plain())


def _toml(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # late: one client alone writes it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        # The reader's own words may repeat a part of a value; the place is enough.
        place = str(problem).rpartition("(at ")[2].rstrip(")")
        raise ConfigError(f"{path}, {place or 'somewhere'}: this is no TOML, or says something twice") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{path}: this TOML is nested too deep, or has a number that is too large") from None
