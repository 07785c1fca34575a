"""``codemode console``: the approval console over a database, served by itself."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..continuations.keys import environment_keys, set_continuation_signing_key
from ..errors import CodeModeError
from ..stores.durability import open_store
from .databases import require_database, tell_seldom
from .describe import tool_over
from .exits import DONE, UsageError

if TYPE_CHECKING:
    from ..stores.interrupt_store import InterruptStore

PACKAGE = "codemode_console"
_HOW_TO_INSTALL = (
    "the console is a distribution of its own, codemode-console, which is not installed: in a clone of the repository"
    " pip install ./integrations/console"
)


def console(options: argparse.Namespace) -> int:
    """Serve the console until the process is told to end."""
    tell_seldom()
    package = _package()
    if keys := _keys():
        set_continuation_signing_key([*keys])  # also without tools: what programs have done is read with it
    store = _store(options.database)
    require_database(options.database, create=options.create)
    auth = None if options.tokens is None else _auth(package, options.tokens)
    resume = None if options.tools is None else _resume(options.tools, options.app, store)
    try:
        package.serve(store, auth=auth, resume=resume, host=options.host, port=options.port, say=_say)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{options.host}:{options.port} cannot be had: {error.strerror or error}") from error
    except CodeModeError as error:
        raise UsageError(f"{options.database.partition(':')[0]} database: {error.message}") from error
    return DONE


def _package() -> Any:
    try:
        return import_module(PACKAGE)
    except ModuleNotFoundError as error:
        if error.name == PACKAGE:
            raise UsageError(_HOW_TO_INSTALL) from error
        raise UsageError(f"{_HOW_TO_INSTALL} (of what it needs {error.name} is missing)") from error


def _store(url: str) -> InterruptStore:
    try:
        return open_store(url)
    except (ImportError, ValueError) as error:
        raise UsageError(str(error)) from error


def _auth(package: Any, path: str) -> Any:
    try:
        return package.TokenAuth.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no file of tokens: {error}") from error


def _keys() -> tuple[bytes, ...] | None:
    try:
        return environment_keys()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _resume(path: str, app: str | None, store: InterruptStore) -> Any:
    """Return what lets programs go on; a file that sets the key itself needs none in the environment."""
    continuation: dict[str, object] = {"guard": store.guard}
    if keys := _keys():
        continuation["keys"] = keys
    code_mode = tool_over(path, {"approval": {"mode": "interrupt"}, "continuation": continuation})
    return code_mode.resume if app is None else {app: code_mode.resume}


def _say(text: str) -> None:
    print(text, flush=True)
