"""What is published besides wheels is valid and names the versions of the distributions."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator

TREE = Path(__file__).parents[2]
GATEWAY = TREE / "integrations" / "gateway"
SCHEMAS = TREE / "tests" / "data" / "published_schemas"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def version_of(project: Path) -> str:
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_registry_entry_fits_the_registrys_schema():
    server = read(GATEWAY / "server.json")
    assert [*Draft202012Validator(read(SCHEMAS / "server.schema.json")).iter_errors(server)] == []
    assert {server["version"], *(package["version"] for package in server["packages"])} == {version_of(GATEWAY)}
    assert f"<!-- mcp-name: {server['name']} -->" in (GATEWAY / "README.md").read_text(encoding="utf-8")


def test_the_bundle_has_a_valid_manifest_and_its_entry_point(tmp_path: Path):
    spec = importlib.util.spec_from_file_location("mcpb_build", GATEWAY / "mcpb" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    with zipfile.ZipFile(builder.build(tmp_path)) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        assert manifest["server"]["entry_point"] in bundle.namelist()
    assert [*Draft7Validator(read(SCHEMAS / "mcpb-manifest-v0.4.schema.json")).iter_errors(manifest)] == []
    assert manifest["version"] == version_of(GATEWAY)
    assert manifest["server"]["mcp_config"]["args"] == [f"codemode-gateway=={version_of(GATEWAY)}"]


def test_the_command_of_the_package_alone_starts_the_gateway():
    project = tomllib.loads((GATEWAY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["codemode-gateway"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_citation_names_the_version():
    (version,) = re.findall(r"^version: (.+)$", (TREE / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert version == version_of(TREE)
