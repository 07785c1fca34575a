"""A Postgres cluster of the tests' own: made under an unprivileged user, in a folder of its own, and ended by them.

``pg_ctl`` starts it, so it is no descendant of the tests: one that kills what it finds below this process, to see what
becomes of a run, would end the database with it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from required import missing

_START_SECONDS, _STOP_SECONDS = "120", "120"
# In memory a database is made in 15 ms, and in 50 to 300 ms on a disk.
_MEMORY_FOLDER, _NEEDED_BYTES = Path("/dev/shm"), 1 << 32


def binaries() -> tuple[str, str]:
    """``initdb`` and ``pg_ctl``; without them the test is skipped, or fails where they are required."""
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        missing("postgres", "psycopg with its pool is not installed")
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin")]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return str(folder / "initdb"), str(folder / "pg_ctl")
    found = shutil.which("initdb"), shutil.which("pg_ctl")
    if found[0] is None or found[1] is None:
        missing("postgres", "there is no initdb on this machine")
    return found


@contextmanager
def cluster() -> Generator[str]:
    """The folder of the socket of a running cluster."""
    initdb, pg_ctl = binaries()
    folder = tempfile.mkdtemp(prefix="codemode-pg-", dir=_find_folder())
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    data = f"{folder}/data"
    try:
        if failure := _told(folder, initdb, "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync"):
            missing("postgres", f"initdb failed: {failure}")
        try:
            if failure := _started(folder, pg_ctl):
                missing("postgres", f"the server did not start: {failure} {Path(f'{folder}/log').read_text()[-300:]}")
            yield folder
        finally:
            _told(folder, pg_ctl, "stop", "-D", data, "-m", "fast", "-t", _STOP_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_folder() -> Path | None:
    """The folder in memory if it has room enough, and None for that of temporary files."""
    is_usable = os.access(_MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(_MEMORY_FOLDER).free >= _NEEDED_BYTES
    return _MEMORY_FOLDER if is_usable else None


@contextmanager
def away(folder: str) -> Generator[None]:
    """A running cluster crashes, stays away while the block runs, and comes back."""
    _, pg_ctl = binaries()
    failure = _told(folder, pg_ctl, "stop", "-D", f"{folder}/data", "-m", "immediate", "-t", _STOP_SECONDS)
    assert not failure, failure
    try:
        yield
    finally:
        failure = _started(folder, pg_ctl)
        assert not failure, failure


def _started(folder: str, pg_ctl: str) -> str:
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=60"
    log = f"{folder}/log"
    return _told(folder, pg_ctl, "start", "-D", f"{folder}/data", "-l", log, "-o", options, "-t", _START_SECONDS)


def _told(folder: str, *command: str) -> str:
    """What a command that failed said; a server's output goes to its log, for it outlives the command."""
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    settings = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": folder}, **account}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, **settings)
    return ended.stderr[-300:] or "it failed" if ended.returncode else ""


def dsn_of(folder: str, name: str) -> str:
    return f"host={folder} user=tests dbname={name}"


def new_database(folder: str, name: str) -> str:
    """Make an empty database and return how to reach it."""
    import psycopg

    with psycopg.connect(dsn_of(folder, "postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return dsn_of(folder, name)


def new_url(folder: str, name: str) -> str:
    """Make an empty database and return its URL, as configurations name it."""
    new_database(folder, name)
    return f"postgresql://tests@/{name}?host={folder}"
