"""Questions in the terminal that only a person answers."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import Iterator

import pytest

from codemode.cli import run
from codemode.cli.run import TerminalApprover


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make stdin a terminal, and return the descriptor at which its person types."""
    person, own = pty.openpty()
    with os.fdopen(own, encoding="utf-8") as stdin, os.fdopen(person, "wb"):
        monkeypatch.setattr(sys, "stdin", stdin)
        yield person


def confirmed(mode: str) -> bool:
    return asyncio.run(TerminalApprover(mode).ask_confirmation("a page", "Open this page? [y/N] "))


@pytest.mark.parametrize("mode", ["ask", "all"])
def test_a_person_confirms_or_declines(mode: str, terminal: int, monkeypatch: pytest.MonkeyPatch):
    for typed, is_yes in ((b"y\n", True), (b"n\n", False), (b"\n", False)):
        monkeypatch.setattr(run, "_discard_typed_input", lambda typed=typed: os.write(terminal, typed))
        assert confirmed(mode) is is_yes


def test_deny_declines_at_a_terminal_too(terminal: int):
    assert not confirmed("deny")


def test_without_a_terminal_nothing_is_confirmed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    with open(os.devnull, encoding="utf-8") as nothing:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not confirmed("all")
    assert "only a person at a terminal can answer this" in capsys.readouterr().err
