"""Says why the process of a server cannot be started: to the operator with its paths, to programs without."""

from __future__ import annotations

from errno import EACCES, ENOENT, ENOTDIR

from codemode.trace.visible_text import one_line

from ..config.values import ServerConfig
from .guard import SpawnError
from .losses import NotStartedError

_MAX_NAME_CHARACTERS = 200


def not_started(error: SpawnError, config: ServerConfig) -> NotStartedError:
    """Return what is raised where the server of this configuration cannot be started."""
    name, command = _named(config.name), _named(config.command or "")
    if error.at == "cwd":
        told = "its folder cannot be entered"
        folder = _named(config.cwd or "")
        return NotStartedError(
            f"its folder {folder} cannot be entered ({error.strerror}): change cwd of the server {name}", told
        )
    if error.at == "command" and error.errno in (ENOENT, ENOTDIR):
        return NotStartedError(_missing(config, name, command), "its command was not found")
    if error.at == "command" and error.errno == EACCES:
        told = "its command may not be run"
        return NotStartedError(
            f"its command {command} may not be run: change its permissions, or command of the server {name}", told
        )
    told = "its process cannot be started"
    return NotStartedError(f"{told} ({command}): {error.strerror}", told)


def _missing(config: ServerConfig, name: str, command: str) -> str:
    first, _, rest = (config.command or "").strip().partition(" ")
    if rest and "/" not in rest:  # and perhaps a secret, which nobody is to be told
        return f"its command does not exist: what stands behind {_named(first)} belongs into args of the server {name}"
    return (
        f"its command {command} does not exist: install it, or write the whole path of one that does as command of"
        f" the server {name}"
    )


def _named(text: str) -> str:
    return repr(one_line(text, _MAX_NAME_CHARACTERS))
