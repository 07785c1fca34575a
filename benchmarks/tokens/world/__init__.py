"""The small shop that the tasks ask about: data made from a seed, and the functions of the tools over them.

Each conversation gets a world of its own, so that what one writes, or how often it has asked, is nothing to the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .alarms import Alarms
from .browser import Browser
from .database import Database
from .files import Files
from .issues import Issues
from .knowledge import Knowledge
from .logs import Logs
from .metrics import Metrics
from .pull_requests import PullRequests
from .times import Times

Function = Callable[[Any], Awaitable[Any]]

_SERVERS = (Alarms, Browser, Database, Files, Issues, Knowledge, Logs, Metrics, PullRequests, Times)


def new_world() -> Mapping[str, Function]:
    """Return fresh functions by the tool's name: each takes the call's input as JSON and gives the tool's output."""
    return {name: function for server in _SERVERS for name, function in server().functions().items()}
