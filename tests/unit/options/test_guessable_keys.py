"""Signing keys that stand in a document in the place of one: they are told from those that somebody has made."""

from __future__ import annotations

import base64
import random
import re
from pathlib import Path

import pytest
from suite import each_row

from codemode.options import checked_fields
from codemode.options.checked_fields import KEY_COMMAND, is_example_key, is_placeholder_key
from codemode.options.parts import CodeModeOptions

ROOT = Path(__file__).parents[3]
SHOWN = [
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("*.md"),
    *(ROOT / "examples").rglob("*.py"),
    *(path for path in (ROOT / "deploy").rglob("*") if path.is_file()),
    *(ROOT / "integrations").glob("*/*.md"),
    *(ROOT / "integrations").glob("*/examples/*.py"),
]
LITERAL = re.compile(r"""(?:["']?keys["']?\s*[:=]\s*\[?\s*|signing_key\(\[?)b?["']([^"'$\n]{16,})["']""")


def shown_keys() -> list[str]:
    return sorted({key for path in SHOWN for key in LITERAL.findall(path.read_text(encoding="utf-8"))})


def test_the_documents_show_some():
    assert len(shown_keys()) >= 5


@each_row("key", shown_keys())
def test_what_our_own_documents_show_is_no_key(key: str):
    assert is_placeholder_key(key.encode()) or is_example_key(key.encode())


@each_row(
    "key",
    [
        "k" * 32,
        "0" * 64,
        "ab" * 32,
        "change-me-change-me-change-me-chan",
        "CHANGE_ME_TO_A_LONG_RANDOM_TEXT!!",
        "please replace this by 32 bytes..",
        "your-secret-key-goes-here-0123456",
        "<at least 32 random characters>!",
        "0123456789abcdef0123456789abcdef",
        "12345678901234567890123456789012",
        "abcdefghijklmnopqrstuvwxyz012345",
        "correct horse battery correct horse battery ",
        "x" * 100_000,
        "\0" * 32,
    ],
)
def test_what_everybody_would_try_first_is_no_key(key: str):
    assert is_placeholder_key(key.encode())


def test_what_was_made_at_random_is_one():
    chance = random.Random(17)
    for _ in range(2_000):
        made = chance.randbytes(32)
        text = base64.urlsafe_b64encode(made).rstrip(b"=")
        for key in (made, made[:16], text, text[:32], made.hex().encode(), made[:16].hex().encode()):
            assert not is_placeholder_key(key), key
            assert not is_example_key(key), key


@pytest.mark.parametrize("key", ["change-me-" * 4, "32 random bytes, on every host"])
def test_a_guessable_key_is_warned_of_once_and_not_logged(caplog: pytest.LogCaptureFixture, key: str):
    checked_fields._warn_guessable_key.cache_clear()
    caplog.set_level("WARNING", "codemode.continuations")
    CodeModeOptions.of({"continuation": {"keys": ["9c1f0a7e93d24b68a1e7c05d9b3f8462"]}})
    assert "example" not in caplog.text
    for _ in range(2):
        CodeModeOptions.of({"continuation": {"keys": ["9c1f0a7e93d24b68a1e7c05d9b3f8462", key]}})
    (warning,) = [record for record in caplog.records if "is an example or has few" in record.getMessage()]
    assert KEY_COMMAND in warning.getMessage()
    assert key not in warning.getMessage()
