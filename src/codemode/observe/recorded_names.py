"""Names of this package in telemetry records. Imports nothing of OpenTelemetry."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import TypeAlias

Attributes: TypeAlias = dict[str, str | int | float | bool]

SCOPE = "codemode"


@cache
def get_package_version() -> str:
    """Return this distribution's version, read once; empty where it is not installed."""
    try:
        return metadata.version("codemode-toolkit")
    except metadata.PackageNotFoundError:
        return ""
