"""What is built and installed is whole: a program runs from a wheel, where nothing of this folder can be found."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from required import missing

ROOT = Path(__file__).parents[2]
PROGRAM = """
import codemode
tool = codemode.create_code_mode_tool({"double": lambda n: 2 * n})
print(codemode.__file__)
print(tool.execute_sync({"js": "const n: number = await tools.double({ n: 21 }); return n"}))
"""


def ran(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ran(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT), cwd=folder)
    if build.returncode and "hatchling" in build.stderr:
        missing("index", "pip reaches no package index")
    assert build.returncode == 0, build.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.full
def test_all_files_of_the_package_are_in_the_wheel(wheel: Path):
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in (".py", ".js", ".typed")}
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if name.startswith("codemode/")}
    assert inside == files
    assert {"codemode/guest/worker.py", "codemode/guest/layers.py", "codemode/guest/kernel/entry.js"} <= inside


@pytest.mark.full
def test_a_program_runs_from_an_installed_wheel(wheel: Path, tmp_path: Path):
    ran(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python, site = tmp_path / "env/bin/python", next((tmp_path / "env/lib").glob("python*/site-packages"))
    # The path alone: the links to this folder that lie there are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    installed = ran(sys.executable, *install, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    program = ran(str(python), "-W", "error", "-c", PROGRAM, cwd=tmp_path)
    assert program.returncode == 0, program.stderr
    assert program.stdout.splitlines() == [str(site / "codemode/__init__.py"), "42"]
    doctor = ran(str(tmp_path / "env/bin/codemode"), "doctor", cwd=tmp_path)
    assert (doctor.returncode, doctor.stderr) == (0, ""), doctor.stdout
    assert doctor.stdout.endswith("All is well.\n")
