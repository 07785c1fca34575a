"""Fixtures of the process tests: a folder, a server, a pool, and a check that nothing is left after each file."""

from __future__ import annotations

from process_fixtures import *  # noqa: F403
