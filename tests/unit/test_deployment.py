"""What stands in deploy/ is valid, and keeps what docs/deploy.md says of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs]
import pytest
import yaml
from codemode_gateway import load_config
from codemode_gateway.gateway import http_app
from suite import each_row

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = "1.33"  # the first in which hostUsers is on by default
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
NAMED = re.compile(r"(?<![\w/])(?:deploy|docs)/[\w./-]*\w")
GATEWAYS = [name for name in COMPOSE["services"] if name.startswith("gateway-")]


def of_kind(kind: str) -> dict[str, Any]:
    return next(manifest for manifest in MANIFESTS if manifest["kind"] == kind)


@each_row("manifest", MANIFESTS)
def test_each_manifest_fits_the_schema_of_its_kind(manifest: dict[str, Any]):
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_check_sees_what_no_manifest_has():
    wrong = {**of_kind("PodDisruptionBudget"), "spec": {"minAvailble": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_pods_have_no_right_that_a_gateway_does_not_need():
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["hostUsers"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"readinessProbe", "livenessProbe", "startupProbe"} <= container.keys()
        assert container["readinessProbe"]["timeoutSeconds"] > http_app._CHECK_TIMEOUT_SECONDS + 1


def test_services_and_budgets_find_the_pods():
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["minAvailable"] < of_kind("Deployment")["spec"]["replicas"]


@pytest.mark.parametrize("name", GATEWAYS)
def test_containers_of_the_compose_file_have_none_either(name: str):
    service = COMPOSE["services"][name]
    assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_no_password_goes_to_git_or_to_the_builder_of_the_image():
    root = DEPLOY.parent
    page = (root / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert " > deploy/.env" in page
    assert ".env" in (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    sent = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in sent if not line.startswith("#")] == ["*", "!dist/*.whl"]


def test_no_rule_of_the_network_leads_to_metadata_of_the_cloud():
    for rule in of_kind("NetworkPolicy")["spec"]["egress"]:
        is_dns = {port["port"] for port in rule.get("ports", ())} == {53}
        assert is_dns or [to["ipBlock"]["except"] for to in rule["to"]] == [["169.254.0.0/16"]]


def test_what_files_name_is_there():
    root = DEPLOY.parent
    files = [file for file in DEPLOY.rglob("*") if file.is_file() and file.name != ".env"]
    named = {name for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))} - {"deploy/.env"}
    assert named
    assert sorted(name for name in named if not (root / name).exists()) == []
    image = of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert f"-t {image} " in (root / "docs" / "deploy.md").read_text(encoding="utf-8")


def test_the_driver_of_postgres_brings_its_library_into_an_image_that_has_none():
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert re.search(r"codemode_toolkit-\*\.whl\)\[[^\]]*\bpostgres\b", image)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    drivers = [one for one in project["optional-dependencies"]["postgres"] if re.match(r"psycopg\[", one)]
    assert "apt-get" in image or any("binary" in one.partition("]")[0] for one in drivers)


def test_where_an_index_is_asked_ours_are_files():
    """Of what is named alone the highest version is taken, whoever has put that into the index."""
    root = DEPLOY.parent
    files = [DEPLOY / "Containerfile", DEPLOY / "check_image.sh", root / "Makefile", root / "docs" / "deploy.md"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files).replace("\\\n", " ")
    asking = [line for line in text.splitlines() if re.search(r"\bpip (install|download)\b", line)]
    assert len(asking) >= 6
    assert [one for one in asking if re.search(r"codemode-|\$\(DISTRIBUTIONS\)", one) and "--no-index" not in one] == []


def test_the_proxy_tells_who_calls_and_reaches_no_database():
    services, networks = COMPOSE["services"], COMPOSE["networks"]
    assert "X-Forwarded-For $proxy_add_x_forwarded_for" in (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    (where,) = networks["front"]["ipam"]["config"]
    for name in GATEWAYS:
        assert services[name]["environment"]["CODEMODE_PROXY"] == where["subnet"]
        assert services[name]["networks"] == ["front", "back"]
    assert (services["proxy"]["networks"], services["postgres"]["networks"]) == (["front"], ["back"])
    assert [one for one in services.values() if one["cap_drop"] != ["ALL"]] == []
    assert [one for one in services.values() if one["security_opt"] != ["no-new-privileges:true"]] == []


def test_the_proxy_knows_all_gateways():
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert [name for name in GATEWAYS if f"server {name}:8765 " not in proxy] == []
    assert COMPOSE["services"]["proxy"]["depends_on"] == GATEWAYS


def test_both_have_one_configuration_which_the_gateway_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    text = (DEPLOY / "mcp.json").read_text(encoding="utf-8")
    assert of_kind("ConfigMap")["data"]["mcp.json"] == text
    for name in ("CODEMODE_STORE", "CODEMODE_KEY", "CODEMODE_URL", "TICKETS_URL"):
        assert name in COMPOSE["services"]["gateway-1"]["environment"]
    monkeypatch.setenv("CODEMODE_STORE", "postgresql://codemode:secret@postgres/codemode")
    monkeypatch.setenv("CODEMODE_KEY", "5f1c0a7e93d24b68a1e7c05d9b3f8462")
    monkeypatch.setenv("CODEMODE_URL", "http://localhost:8080")
    monkeypatch.setenv("TICKETS_URL", "https://tickets.example.com/mcp")
    monkeypatch.setenv("TICKETS_TOKEN", "token")
    config = load_config(DEPLOY / "mcp.json", state_folder=tmp_path)
    assert config.problems == ()
    assert [server.name for server in config.servers] == ["tickets"]


def test_images_of_others_are_named_from_outside_by_digest():
    services = COMPOSE["services"]
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    for name, image in {"proxy": "NGINX_IMAGE", "postgres": "POSTGRES_IMAGE"}.items():
        assert services[name]["image"].startswith(f"${{{image}:?"), name
        assert f"$ pin {image} docker.io/" in page
    assert services["gateway-1"]["build"]["args"] == {"PYTHON_IMAGE": "${PYTHON_IMAGE:?}"}
    assert "ARG PYTHON_IMAGE=" in (DEPLOY / "Containerfile").read_text(encoding="utf-8")


def test_gateways_have_a_role_that_is_no_superuser():
    database = COMPOSE["services"]["postgres"]
    role = (DEPLOY / "gateway-role.sh").read_text(encoding="utf-8")
    assert "CREATE ROLE codemode LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE" in role
    assert any(one.startswith("./gateway-role.sh:/docker-entrypoint-initdb.d/") for one in database["volumes"])
    for name in GATEWAYS:
        store = COMPOSE["services"][name]["environment"]["CODEMODE_STORE"]
        assert "${GATEWAY_DB_PASSWORD:?}" in store
        assert "POSTGRES_PASSWORD" not in store
