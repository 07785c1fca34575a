"""The tables of content: the parts of a run, and what holds them there: at least one for each run that has parts."""

from __future__ import annotations

CONTENT = (
    (
        "CREATE TABLE codemode_content (tenant TEXT NOT NULL, app TEXT NOT NULL, run TEXT NOT NULL, id TEXT NOT NULL,"
        " description TEXT NOT NULL, data {blob} NOT NULL, PRIMARY KEY (tenant, app, run, id))"
    ),
    (
        "CREATE TABLE codemode_content_holds (tenant TEXT NOT NULL, app TEXT NOT NULL, run TEXT NOT NULL,"
        " holder TEXT NOT NULL, until_ms BIGINT, PRIMARY KEY (tenant, app, run, holder)){clustered}"
    ),
    "CREATE INDEX codemode_content_holds_by_holder ON codemode_content_holds (holder)",
    "CREATE INDEX codemode_content_holds_by_time ON codemode_content_holds (until_ms)",
)
