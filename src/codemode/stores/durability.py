"""Open a store by URL or path, and set the options that durable pauses need."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..continuations.keys import (
    DEFAULT_MAX_AGE_MS,
    SIGNING_KEY_VARIABLE,
    get_configured_keys,
    get_continuation_max_age_ms,
    read_environment_keys,
)
from ..options.checked_fields import KEY_COMMAND, WrongTypeError
from ..options.parts import CodeModeOptions

if TYPE_CHECKING:
    from pathlib import Path

    from .interrupt_store import InterruptStore

DEFAULT_STORED_MAX_AGE_MS = 7 * 24 * 3_600_000
StoreLike: TypeAlias = "InterruptStore | str | Path"
_URL_EXAMPLES = "sqlite:///pauses.db, or postgresql://user@host/name"
_POSTGRES_SCHEMES = ("postgresql", "postgres")
_REQUIRED_METHODS = ("put", "decide", "claim", "settle", "put_suspended", "journal")


def open_store(store: StoreLike) -> InterruptStore:
    """Return a store for a URL or the path of a SQLite file; an open store as it is.

    Nothing is read or written before the first use. Raises `ValueError` for an invalid URL, a
    missing folder and a missing driver.
    """
    if not isinstance(store, str | os.PathLike):
        if not all(callable(getattr(store, name, None)) for name in _REQUIRED_METHODS):
            raise WrongTypeError(f"store must be a store of interrupts or a URL ({_URL_EXAMPLES}), got {store!r:.100}")
        return store
    scheme, colon, rest = str(store).partition("://")
    if colon and scheme in _POSTGRES_SCHEMES:
        from .postgres import PostgresInterruptStore

        return PostgresInterruptStore(str(store))
    path = rest.removeprefix("/") if colon else str(store)
    is_file = scheme == "sqlite" and rest.startswith("/") if colon else not re.match(r"\w\w+:", path)
    if not is_file or not path or "?" in path:
        raise ValueError(f"store {_redact_url(str(store))} is not a database: use {_URL_EXAMPLES}")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"store {path} cannot be created: missing folder {folder}")
    from .sqlite import SqliteInterruptStore

    return SqliteInterruptStore(path)


def open_store_and_make_options_durable(
    options: CodeModeOptions, store: StoreLike | None
) -> tuple[CodeModeOptions, InterruptStore | None]:
    """Return the options with which pauses outlive this process, and the store.

    Calls that need approval pause, unless ``approval`` says otherwise. The store becomes guard and content store. The
    key comes from the options, from `set_continuation_signing_key`, or from the environment variable
    ``CODEMODE_SIGNING_KEY``. Pauses are valid for a week unless ``max_age_ms`` is set. Raises `ValueError` for another
    guard in the options and without a key that other processes have, and as `open_store` does.
    """
    if store is None:
        return options, None
    opened = open_store(store)
    continuation, approval, guard = options.continuation, options.approval, cast("Any", opened.guard)
    if continuation.guard is not None and continuation.guard is not guard:
        raise ValueError("continuation.guard is not the guard of the store: leave it out, store= sets its own")
    keys, max_age_ms = continuation.keys, continuation.max_age_ms
    if keys is None and get_configured_keys() is None and getattr(guard, "is_shared_between_processes", True):
        keys = read_environment_keys()
        if keys is None:
            raise ValueError(
                "store= needs a signing key that all processes share, so that each can resume its records:"
                f" set the environment variable {SIGNING_KEY_VARIABLE} to the output of {KEY_COMMAND},"
                " or give continuation={'keys': ...}"
            )
    if max_age_ms is None and get_continuation_max_age_ms() == DEFAULT_MAX_AGE_MS:
        max_age_ms = DEFAULT_STORED_MAX_AGE_MS
    if not (approval.is_set_explicitly("mode") or approval.on_approval_required):
        approval = replace(approval, mode="interrupt")
    continuation = replace(continuation, guard=guard, keys=keys, max_age_ms=max_age_ms)
    return options.with_parts(approval=approval, continuation=continuation), opened


def _redact_url(url: str) -> str:
    return repr(url if "@" not in url else url.partition(":")[0] + "://...")
