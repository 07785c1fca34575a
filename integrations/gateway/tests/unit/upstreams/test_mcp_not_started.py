"""Why a server cannot be started: the operator reads which command or folder it is about, programs do not."""

from __future__ import annotations

import asyncio
from errno import EACCES, EAGAIN, EIO, ENOENT, ENOTDIR
from typing import Any

import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.upstreams import reconnecting as links
from codemode_gateway.upstreams.connection import Transport
from codemode_gateway.upstreams.process_supervisor import SpawnError
from codemode_gateway.upstreams.reconnecting import ReconnectingConnection
from codemode_gateway.upstreams.stdio import server_not_started_error

COMMAND, FOLDER = "/home/ana/.nvm/bin/npx", "/home/ana/notes"
CONFIG = ServerConfig("notes", "stdio", command=COMMAND, cwd=FOLDER)


class Broken:
    """The streams of a server that fails before there are any."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __aenter__(self) -> Any:
        raise self.error

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (server_not_started_error(SpawnError(ENOENT, "command"), CONFIG), COMMAND),
        (server_not_started_error(SpawnError(ENOTDIR, "command"), CONFIG), COMMAND),
        (server_not_started_error(SpawnError(EACCES, "command"), CONFIG), COMMAND),
        (server_not_started_error(SpawnError(EIO, "command"), CONFIG), COMMAND),
        (server_not_started_error(SpawnError(EAGAIN, "fork"), CONFIG), COMMAND),
        (server_not_started_error(SpawnError(ENOENT, "cwd"), CONFIG), FOLDER),
        (FileNotFoundError(ENOENT, "No such file", "/home/ana/.config/x"), "/home/ana/.config/x"),
    ],
)
@pytest.mark.parametrize("is_hook", [False, True])
def test_no_path_of_this_machine_is_told_to_programs(
    error: Exception, shown: str, is_hook: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def transport(*_: Any) -> Transport:
        if is_hook:
            raise error
        return Transport(Broken(error), lambda: None, tracks_sending=False)

    async def work() -> tuple[str | None, str | None, str]:
        nothing: Any = lambda *_: None  # noqa: E731
        link = ReconnectingConnection(CONFIG, SecretRedactor(), nothing, nothing, nothing)
        with pytest.raises(Exception, match="cannot be used now") as raised:
            await link.get_or_open_connection()
        await link.aclose()
        return link.failure, link.problem, str(raised.value)

    monkeypatch.setattr(links, "create_transport", transport)
    failure, problem, told = asyncio.run(work())
    assert failure is not None
    assert problem is not None
    assert "ana" not in failure + told
    assert failure in told
    assert shown in problem
    assert shown in caplog.text
