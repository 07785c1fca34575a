"""The engine is found as importlib.metadata finds it, or left to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codemode.workers import image
from codemode.workers.image import find_engine_in_dist_info


def installed(folder: Path, version: str = "1.2", metadata: str = "quickjs_ng-1.2.dist-info") -> Path:
    (folder / metadata).mkdir(parents=True)
    (folder / metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: quickjs-ng\nVersion: {version}\n\nVersion: 9\n"
    )
    (folder / metadata / "RECORD").write_text("quickjs/_quickjs.so,,\n_quickjs.abi3.so,sha256=x,1\n")
    (folder / "_quickjs.abi3.so").touch()
    return folder


def nothing(*_names: str) -> None: ...


def found(monkeypatch: pytest.MonkeyPatch, *path: Path) -> tuple[str, str] | None:
    monkeypatch.setattr(sys, "path", [str(one) for one in path])
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if isinstance(one, type)])
    return find_engine_in_dist_info("quickjs-ng", "_quickjs")


def test_the_installed_engine_is_the_one_that_importlib_metadata_names(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:  # with all finders, of which `found` leaves some out
        patch.setattr(image, "find_engine_in_dist_info", nothing)
        by_metadata = image.find_engine()
    assert found(monkeypatch, *map(Path, sys.path)) == by_metadata


def test_the_first_folder_of_the_path_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first, second = installed(tmp_path / "first"), installed(tmp_path / "second", "2.0")
    assert found(monkeypatch, tmp_path / "none", first, second) == (str(first / "_quickjs.abi3.so"), "1.2")
    assert found(monkeypatch, second, first) == (str(second / "_quickjs.abi3.so"), "2.0")


def test_what_is_not_plain_is_left_to_importlib_metadata(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    good = installed(tmp_path / "good")
    twice = installed(installed(tmp_path / "twice"), metadata="quickjs_ng-1.3.dist-info")
    egg = installed(tmp_path / "egg", metadata="quickjs_ng-1.2.egg-info")
    gone = installed(tmp_path / "gone")
    (gone / "_quickjs.abi3.so").unlink()
    zipped = tmp_path / "zipped.zip"
    zipped.touch()
    for first in (twice, egg, gone, zipped):
        assert found(monkeypatch, first, good) is None
    assert found(monkeypatch, tmp_path) is None

    class Finder:
        def find_distributions(self) -> None: ...

    assert found(monkeypatch, good) is not None
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert find_engine_in_dist_info("quickjs-ng", "_quickjs") is None


def test_no_metadata_is_imported_for_it():
    script = "import sys; from codemode.workers.image import find_engine as e; e(); print('email' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
