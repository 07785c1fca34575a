"""The lowest versions that `make test-lowest` runs the plugins with are those that their pyproject files name."""

import re
import runpy
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_script = runpy.run_path(str(ROOT / "integrations" / "lowest_versions.py"))
lowest_versions, to_test = _script["lowest_versions"], _script["to_test"]


def test_the_development_tools_take_no_lower_ones():
    here = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    said = dict(re.findall(r'"(pydantic-ai-slim|langchain|langgraph)(?:\[[^]]*\])?>=([\d.]+)', here))
    lowest = dict(one.split("==") for one in lowest_versions(ROOT / "integrations"))
    of_the_plugins = {"pydantic-ai-slim", "langchain", "langchain-core", "langgraph"}
    of_the_console = {
        "httpx", "itsdangerous", "jinja2", "markupsafe", "pygments", "python-multipart", "sse-starlette", "starlette",
        "uvicorn",
    }  # fmt: skip
    assert set(lowest) == of_the_plugins | of_the_console
    assert said == {name: lowest[name] for name in said}
    assert len(said) == 3


def test_a_requirement_without_a_lower_bound_is_refused(tmp_path: Path):
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    said = '[project]\ndependencies = ["codemode-toolkit>=0.1", "framework[extra]>=1.2,<2"]\n'
    (plugin / "pyproject.toml").write_text(said, encoding="utf-8")
    assert lowest_versions(tmp_path) == ["framework==1.2"]
    (plugin / "pyproject.toml").write_text(said.replace(">=1.2,", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="lower bound"):
        lowest_versions(tmp_path)


def test_a_plugin_runs_again_where_a_lower_version_is_another_one(tmp_path: Path):
    installed = version("pytest")
    for name, bound in {"same": installed, "zeros": f"{installed}.0", "older": "8.0"}.items():
        (tmp_path / name).mkdir()
        said = f'[project]\ndependencies = ["pytest>={bound}"]\n'
        (tmp_path / name / "pyproject.toml").write_text(said, encoding="utf-8")
    assert to_test(tmp_path) == [str(tmp_path / "older")]
