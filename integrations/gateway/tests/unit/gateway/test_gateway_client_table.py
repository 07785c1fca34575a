"""What is known of clients, and what an operator says otherwise."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import GatewaySettings
from codemode_gateway.gateway.options import CLIENT_PROFILES, ClientProfile, find_client_profile
from suite import each_row


def shown(name: str | None, **settings: Any) -> ClientProfile:
    info = None if name is None else types.Implementation(name=name, version="1")
    return find_client_profile(info, GatewaySettings(**settings))


@each_row("name", [None, "", "claude-ai", "cursor-vscode", "Visual Studio Code", "codex-mcp-client", "x.y"])
def test_who_is_not_known_to_take_dots_is_told_a_name_without(name: str | None):
    assert shown(name).tool_name == "codemode_run"


def test_who_takes_dots_is_told_the_name_of_the_protocol():
    dotted = [name for name, known in CLIENT_PROFILES.items() if known.allows_dots]
    assert dotted
    assert {shown(name).tool_name for name in dotted} == {"codemode.run"}


@pytest.mark.parametrize("name", ["claude-code", "Claude-Code", " claude-code (via mcp-remote 0.1.30)"])
def test_a_client_is_known_by_its_name_however_it_is_written_or_bridged(name: str):
    assert shown(name).description_characters == 2_000 < shown("other").description_characters


def test_an_operator_names_the_tool():
    assert shown("mcp-inspector", tool_name="codemode_run").tool_name == "codemode_run"
    assert shown("claude-code", tool_name="codemode.run").tool_name == "codemode.run"


def test_an_operator_overrides_what_is_known_of_a_client_and_of_all():
    clients = {"*": {"descriptionCharacters": 1_000, "asks": "console"}, "Claude-Code": {"toolName": "codemode.run"}}
    assert shown("claude-code", clients=clients) == ClientProfile("codemode.run", 1_000, ask_mode="console")
    assert shown("other", clients=clients) == ClientProfile("codemode_run", 1_000, ask_mode="console")
    last = {"*": {"toolName": "codemode.run"}, "claude-code": {"toolName": "auto"}}
    assert shown("claude-code", clients=last).tool_name == "codemode_run"
