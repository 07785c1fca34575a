"""URL, its setters, URLSearchParams and the decoder answer as Node's do, on generated inputs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kernel_driver import KernelDriver
from required import node_path
from suite import rounds
from url_inputs import bytes_case, url_case

pytestmark = [pytest.mark.node, pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")]
JUDGE = (Path(__file__).parent / "url_judge.js").read_text()
BATCH = 2_500
URLS = int(os.environ.get("CODEMODE_URL_CASES", rounds(2_000, 20_000)))
FACE = {"globals": ["tools", "console", "URL", "URLSearchParams", "TextEncoder", "TextDecoder"]}
NO_PATH = ("foo:opaque", "mailto:x", "about:blank")
IN_NODE = (
    JUDGE + "const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
    "process.stdout.write(JSON.stringify(cases.map(judge)));"
)
IN_WORKER = JUDGE + "return (await tools.cases()).map(judge);"


def in_node(cases: list[dict[str, Any]]) -> Any:
    ran = subprocess.run(
        [node_path(), "-e", IN_NODE], input=json.dumps(cases), capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(ran.stdout)


def differing(kernel: KernelDriver, cases: list[dict[str, Any]]) -> list[Any]:
    ours, theirs = kernel.run(IN_WORKER, lambda _: {"value": cases}, **FACE).value, in_node(cases)
    assert len(ours) == len(theirs) == len(cases)
    judged = zip(cases, ours, theirs, strict=True)
    return [(one, mine, node) for one, mine, node in judged if mine != node and not only_node_takes(one, mine, node)]


def only_node_takes(one: dict[str, Any], mine: list[Any], node: list[Any]) -> bool:
    """Whether it is a host beyond ASCII, or resolved against a URL that has no path to resolve against."""
    if mine != ["TypeError"] or "input" not in one:
        return False
    return "xn--" in node[0][6] or (one["base"] in NO_PATH and "#" in one["input"])


def test_urls_as_in_node(kernel: KernelDriver):
    random = Random(20261122)
    for _ in range(0, URLS, BATCH):
        assert differing(kernel, [url_case(random) for _ in range(BATCH)])[:3] == []


@pytest.mark.full
def test_decoding_as_in_node(kernel: KernelDriver):
    random = Random(7)
    assert differing(kernel, [bytes_case(random) for _ in range(2 * BATCH)])[:3] == []
