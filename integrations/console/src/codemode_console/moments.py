"""Times as a page tells them. Knows no clock."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup


def moment_text(unix_ms: int) -> str:
    """Return a time for people, in UTC."""
    found = _moment(unix_ms)
    return f"{unix_ms} ms" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def moment(unix_ms: int) -> Markup:
    """Return a time for a page, which programs can read too."""
    found = _moment(unix_ms)
    if found is None:
        return Markup("{}").format(moment_text(unix_ms))
    stamp = found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{}</time>').format(stamp, moment_text(unix_ms))


def _moment(unix_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a time of which no calendar knows
        return None
