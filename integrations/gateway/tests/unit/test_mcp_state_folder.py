"""A state folder may be given as text, as the Python API takes paths elsewhere."""

from __future__ import annotations

from pathlib import Path

from codemode_gateway import GatewayConfig, GatewaySettings, load_config
from codemode_gateway.gateway.gateway import Gateway


def test_a_state_folder_given_as_text_is_that_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for settings in (
        GatewaySettings(state_folder=str(folder)),  # pyright: ignore[reportArgumentType]
        load_config({"mcpServers": {}}, state_folder=str(folder)).settings,
    ):
        assert settings.state_folder == folder
        gateway = Gateway(GatewayConfig(settings=settings))
        assert gateway.folder == folder


def test_the_home_of_the_user_may_be_named_in_it() -> None:
    assert load_config({"mcpServers": {}}, state_folder="~/codemode").settings.state_folder == Path.home() / "codemode"
