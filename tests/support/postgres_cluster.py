"""A Postgres cluster of the tests' own: made under an unprivileged user, in a folder of its own, and ended by them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from required import missing

_START_SECONDS = 60


def binaries() -> tuple[str, str]:
    """``initdb`` and ``postgres``; without them the test is skipped, or fails where they are required."""
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        missing("postgres", "psycopg with its pool is not installed")
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin")]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return str(folder / "initdb"), str(folder / "postgres")
    found = shutil.which("initdb"), shutil.which("postgres")
    if found[0] is None or found[1] is None:
        missing("postgres", "there is no initdb on this machine")
    return found


@contextmanager
def cluster() -> Generator[str]:
    """The folder of the socket of a running cluster."""
    initdb, postgres = binaries()
    folder = tempfile.mkdtemp(prefix="codemode-pg-")
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    data = f"{folder}/data"
    settings = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": folder}, **account}
    try:
        command = [initdb, "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **settings)
        if made.returncode:
            missing("postgres", f"initdb failed: {made.stderr[-300:]}")
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]
        command = [postgres, "-D", data, "-k", folder, *options]
        with (
            Path(folder, "log").open("w") as log,
            subprocess.Popen(command, stdout=log, stderr=log, **settings) as server,
        ):
            try:
                _wait_for(folder, server)
                yield folder
            finally:
                server.send_signal(2)  # a fast shutdown
                server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def dsn_of(folder: str, name: str) -> str:
    return f"host={folder} user=tests dbname={name}"


def new_database(folder: str, name: str) -> str:
    """Make an empty database and return how to reach it."""
    import psycopg

    with psycopg.connect(dsn_of(folder, "postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return dsn_of(folder, name)


def _wait_for(folder: str, server: subprocess.Popen[Any]) -> None:
    import psycopg

    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(dsn_of(folder, "postgres")).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                missing("postgres", f"the server did not start: {Path(folder, 'log').read_text()[-300:]}")
            time.sleep(0.05)
        else:
            return
