"""The tables of journals. A row of lines is one group, which is written by one opening of its journal.

``written`` counts the groups of a journal, so that a journal whose lines were deleted is refused.
"""

from __future__ import annotations

JOURNALS = (
    (
        "CREATE TABLE codemode_journals (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, app TEXT NOT NULL,"
        " key TEXT NOT NULL, head TEXT NOT NULL, number BIGINT NOT NULL, until_ms BIGINT, outcome TEXT,"
        " is_final BIGINT NOT NULL, is_awaited BIGINT NOT NULL, changed_at_ms BIGINT NOT NULL)"
    ),
    "CREATE UNIQUE INDEX codemode_journals_by_key ON codemode_journals (tenant, app, key)",
    "CREATE INDEX codemode_journals_by_change ON codemode_journals (changed_at_ms)",
    (
        "CREATE TABLE codemode_journal_lines (journal TEXT NOT NULL, number BIGINT NOT NULL, ordinal BIGINT NOT NULL,"
        " texts TEXT NOT NULL, PRIMARY KEY (journal, number, ordinal)){clustered}"
    ),
)

COUNT_LINES = "count lines"
LINE_WRITTEN = "UPDATE codemode_journals SET written = written + 1 WHERE id = NEW.journal;"
COUNTED_LINES = (
    "ALTER TABLE codemode_journals ADD COLUMN written BIGINT NOT NULL DEFAULT 0",
    (
        "UPDATE codemode_journals SET written ="
        " (SELECT count(*) FROM codemode_journal_lines l WHERE l.journal = codemode_journals.id)"
    ),
    COUNT_LINES,
)
