"""The key that a gateway makes for itself: only its user reads it, all gateways of one folder have the same."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from codemode_gateway import ConfigError
from codemode_gateway.gateway.options import load_or_create_signing_keys


def test_keys_that_are_named_are_those(tmp_path: Path):
    assert load_or_create_signing_keys(("old", "new"), tmp_path) == (b"old", b"new")
    assert not [*tmp_path.iterdir()]


def test_a_key_is_made_once_and_only_its_user_reads_it(tmp_path: Path):
    folder = tmp_path / "state" / "codemode"
    first = load_or_create_signing_keys((), folder)
    assert load_or_create_signing_keys((), folder) == first
    assert len(first[0]) == 32
    (kept,) = folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert load_or_create_signing_keys((), tmp_path / "other") != first


def test_gateways_that_start_at_once_have_the_same_key(tmp_path: Path):
    found: list[tuple[bytes, ...]] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait(60)
        found.append(load_or_create_signing_keys((), tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["gateway.key"], "nothing else is left"


@pytest.mark.parametrize("content", [b"", b"half", b"x" * 33])
def test_what_is_no_key_is_named_with_the_way_out(tmp_path: Path, content: bytes):
    (tmp_path / "gateway.key").touch(mode=0o600)
    (tmp_path / "gateway.key").write_bytes(content)
    with pytest.raises(ConfigError, match="remove the file"):
        load_or_create_signing_keys((), tmp_path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o622])
def test_a_key_that_others_know_or_have_written_signs_nothing(tmp_path: Path, mode: int):
    load_or_create_signing_keys((), tmp_path)
    (tmp_path / "gateway.key").chmod(mode)
    with pytest.raises(ConfigError, match=r"set its mode to 600.*codemode\.keys"):
        load_or_create_signing_keys((), tmp_path)


def test_what_is_no_file_is_no_key_and_nobody_waits_for_it(tmp_path: Path):
    os.mkfifo(tmp_path / "gateway.key", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        load_or_create_signing_keys((), tmp_path)


def test_a_folder_that_cannot_be_is_named_with_the_way_out(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"codemode\.keys"):
        load_or_create_signing_keys((), tmp_path / "file" / "state")
