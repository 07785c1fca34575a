"""What a driver says over and over is told once a minute."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import pytest
from codemode_console import command
from codemode_gateway.cli import serve as mcp_serve
from required import missing

from codemode.cli.databases import POSTGRES_LOGGER, LogThrottle
from codemode.cli.exits import UsageError


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord(POSTGRES_LOGGER, logging.WARNING, "", 0, text, values, None)


def test_a_message_passes_once_a_minute_whatever_is_filled_in():
    now = 5.0
    seldom = LogThrottle(lambda: now)
    assert seldom.filter(record("error connecting in %r: %s", "store", "refused"))
    assert not seldom.filter(record("error connecting in %r: %s", "store", "no route"))
    assert seldom.filter(record("reconnection attempt failed after %s sec", 10))
    now = 64.9
    assert not seldom.filter(record("error connecting in %r: %s", "store", "refused"))
    now = 65.0
    assert seldom.filter(record("error connecting in %r: %s", "store", "refused"))


def test_the_driver_logs_under_this_name():
    if find_spec("psycopg_pool") is None:
        missing("postgres", "psycopg with its pool is not installed")
    assert import_module("psycopg_pool.pool").logger.name == POSTGRES_LOGGER


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    log = logging.getLogger(POSTGRES_LOGGER)
    monkeypatch.setattr(log, "filters", [])
    monkeypatch.setattr(logging.getLogger("codemode.mcp"), "level", logging.NOTSET)
    return log


@pytest.mark.parametrize(
    "serve",
    [
        lambda: mcp_serve.run_serve_command(argparse.Namespace(http="no port")),
        lambda: command.main(["--database", "mysql://no-database"]),
    ],
    ids=["the gateway", "the console"],
)
def test_what_serves_tells_seldom(serve: Callable[[], int], log: logging.Logger):
    for _ in range(2):
        with pytest.raises(UsageError):
            serve()
    assert [type(one) for one in log.filters] == [LogThrottle]
