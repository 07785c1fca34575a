"""A server that wants a sign-in, for each test a new one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from authorization_server import SignInServer, sign_in_server


@pytest.fixture
def server() -> Iterator[SignInServer]:
    with sign_in_server() as one:
        yield one
