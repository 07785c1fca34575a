"""The password of a database's URL stands in no error, whatever it is made of."""

from __future__ import annotations

import asyncio

import pytest

from codemode.stores import PostgresInterruptStore, StoreUnavailableError

pytest.importorskip("psycopg")

READ_BY_ITSELF = (
    "postgresql://u:ab@REST@127.0.0.1:1/name",
    "postgres://u:a@b@REST@127.0.0.1:1/name?application_name=me@home",
    "postgresql://u:ab%40REST@127.0.0.1:1/name",
    "postgresql://u:ab#REST@127.0.0.1:1/name",
    "postgresql://127.0.0.1:1/name?user=u&password=REST",
    "host=127.0.0.1 port=1 user=u password=REST",
)
REFUSED = (
    "postgresql://u:ab@REST/more@127.0.0.1:1/name",
    "postgresql://u:ab/REST@127.0.0.1:1/name",
    "postgresql://u:ab@RE?ST@127.0.0.1:1/name",
    "postgresql://u:ab%zzREST@127.0.0.1:1/name",
    "postgresql+asyncpg://u:REST@127.0.0.1:1/name",
    "postgresql://u:REST@[::1/name",
)


def errors_of(dsn: str) -> str:
    async def work() -> str:
        store = PostgresInterruptStore(dsn)
        try:
            await store.changes_head()
        except StoreUnavailableError as error:
            return f"{error} {error.details} {error.__cause__}"
        finally:
            await store.aclose()
        raise AssertionError("there is no such server")

    return asyncio.run(asyncio.wait_for(work(), 60))


def test_no_part_of_a_password_reads_as_the_host() -> None:
    for dsn in READ_BY_ITSELF:
        said = errors_of(dsn)
        assert "REST" not in said, dsn
        assert "127.0.0.1" in said, dsn


def test_a_url_in_which_nobody_can_tell_the_host_is_refused_without_its_text() -> None:
    for dsn in REFUSED:
        with pytest.raises(ValueError, match="dsn") as refused:
            PostgresInterruptStore(dsn)
        assert "RE" not in str(refused.value), dsn
        assert refused.value.__context__ is None, "the driver's own error quotes it"
