"""What a gateway keeps of the sign-ins of its users: of the last ones, and of those that connections use."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from codemode_gateway.config.model import GatewayConfig, GatewaySettings, ServerConfig
from codemode_gateway.oauth import login_manager as module
from codemode_gateway.oauth.login_manager import SignInManager
from codemode_gateway.oauth.settings import SignInError

KEPT = 3
USERS = 12


def test_of_users_without_end_the_last_are_kept_and_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_CACHED_SIGN_INS", KEPT)
    server = ServerConfig("notes", "http", url="http://127.0.0.1:9/mcp")  # where nobody listens

    async def work() -> None:
        async with SignInManager(GatewayConfig((server,), GatewaySettings(state_folder=tmp_path))) as sign_ins:
            used = sign_ins.get_or_create_auth(server, "in use")
            for n in range(USERS):
                with pytest.raises(SignInError):
                    await sign_ins.get_or_start_sign_in(server, f"user {n}")
                with pytest.raises(SignInError):
                    await sign_ins.wait_until_signed_in(server, f"user {n}")
            gc.collect()
            assert len(sign_ins._attempts) == KEPT
            assert len(sign_ins._auths) <= KEPT + 1
            assert sign_ins.get_or_create_auth(server, "in use") is used

    asyncio.run(work())
