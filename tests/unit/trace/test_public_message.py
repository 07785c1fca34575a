"""What a program may read of a host's own error text: no path, no line, no stack, and never much."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.trace.public_message import MAX_PUBLIC_CHARACTERS, to_public_message

INSTEAD = "the tool failed"


@each_row(
    "text, shown",
    [
        ("the account is closed", "the account is closed"),
        ("could not open /etc/passwd: permission denied", "could not open [path]: permission denied"),
        ("[Errno 2] No such file: '/home/me/My Docs/a b.txt'", "[Errno 2] No such file: [path]"),
        ("/Users/My Name/file.txt was lost", "[path] was lost"),
        ("bad C:\\Users\\me\\x.txt, sorry", "bad [path], sorry"),
        ("C:\\Program Files\\App\\x.py failed", "[path] failed"),
        ("C:/data/new/x failed", "[path] failed"),
        ("\\\\server\\share\\x gone", "[path] gone"),
        ("file:///srv/a/b.txt is missing", "[path] is missing"),
        ("~/.ssh/id_rsa is unreadable", "[path] is unreadable"),
        ("~root/x is unreadable", "[path] is unreadable"),
        ("[Errno 2] No such file: 'data/a b.txt'", "[Errno 2] No such file: [path]"),
        ("in src/app/main.py:12: bad", "in [path]: bad"),
        ("main.py:12:5 is wrong", "[path] is wrong"),
        ("App.cs(12,5): error", "[path]: error"),
        ("open(/var/lib/x) failed", "open([path]) failed"),
        ("path=/etc/x failed", "path=[path] failed"),
        ("postgres://user:secret@host/db refused", "postgres://host/db refused"),
        ("https://user:sec@ret@host/x refused", "https://host/x refused"),
        ("see https://example.com/a/b?c=1 for more", "see https://example.com/a/b?c=1 for more"),
        ("and/or 10/20/2024 application/json </div>", "and/or 10/20/2024 application/json </div>"),
        ("unexpected token on line 12, column 3", "unexpected token"),
        ("unexpected token (line 12)", "unexpected token"),
        ("lines 3-7 are wrong", "are wrong"),
        ("wrong, lineno=12", "wrong"),
        ("a\nb\tc\x00", "a b c\\u0000"),
        ("at least one is needed (1)", "at least one is needed (1)"),
        ("#1 is wrong", "#1 is wrong"),
        ("/opt/only/a/path", INSTEAD),
        ("", INSTEAD),
        ("   \n ", INSTEAD),
        ("x" * 300, "x" * 199 + "\u2026"),
    ],
)
def test_only_what_is_said_is_left(text, shown):
    assert to_public_message(text, INSTEAD) == shown


@each_row(
    "text, shown",
    [
        (
            (
                'Traceback (most recent call last):\n  File "/srv/x.py", line 3, in main\n    secret()\n    ^^^^^^\n'
                "ValueError: too large\n\nDuring handling of the above exception, another exception occurred:\n\n"
                'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nKeyError: 1'
            ),
            "ValueError: too large KeyError: 1",
        ),
        ("boom\n    at foo (/a/b.js:1:2)\n    at async bar\n    at <anonymous>", "boom"),
        ("boom at foo (/a/b.js:1:2) at bar (/c.js:2:3)", "boom"),
        ("no\n\tat com.foo.Bar.baz(Bar.java:12)\n\t... 12 more\nCaused by: too late", "no Caused by: too late"),
        ("failed\n   at System.Foo.Bar() in C:\\a\\b.cs:line 12", "failed"),
        ("panic: no\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/x.go:5 +0x1d", "panic: no"),
        ("bad (RuntimeError)\n\tfrom /a/x.rb:9:in 'main'", "bad (RuntimeError)"),
        ("no\n#0 /var/www/x.php(12): f()\n#1 {main}", "no"),
    ],
)
def test_stacks_are_left_out(text, shown):
    assert to_public_message(text, INSTEAD) == shown


NO_PATHS = [
    "use the format YYYY/MM/DD, not 2024/12/31",
    "must match ^\\d{4}-\\d{2}$ or [^/]+/[^/]+",
    "POST /repos/acme/app/issues/5 returned 404",
    "DELETE /home/feed returned 500",
    "no route /api/v1/users/{id}",
    "send application/vnd.api+json or text/plain",
    "branch feature/login/v2 not found in refs/heads/main",
    "unknown time zone America/Argentina/Buenos_Aires",
    "either/or/both, a\\b, 1/2/3, TCP/IP",
    "db.example.com:5432 refused, as did s3://bucket/key",
    "nothing in <a/b>, call f() first, got []",
    "//div[@id='a']/span/text() selects nothing",
]


def test_what_is_no_path_of_this_host_is_left():
    for text in NO_PATHS:
        assert to_public_message(text, INSTEAD) == text, text


names = st.text("abcxyz_", min_size=2, max_size=8)
ways = st.lists(names, min_size=2, max_size=5)
folders = [
    str(Path.home()),
    tempfile.gettempdir(),
    str(Path.cwd()),
    sys.prefix,
    pytest.__path__[0],
    "/etc",
    "/srv",
    "~",
]
forms = st.sampled_from(
    [
        *(lambda way, folder=folder: folder + "/" + "/".join(way) for folder in folders),
        lambda way: "C:\\Users\\" + "\\".join(way),
        lambda way: "\\\\" + "\\".join(way),
        lambda way: "file:///" + "/".join(way),
        lambda way: "/" + "/".join(way) + ".py:12",
    ]
)
around = st.sampled_from(["{}", "'{}'", '"{}"', "({})", "[{}]", "path={}", "a: {}.", "<{}>", "`{}`,", "{}: no"])


@given(forms, ways, around)
def test_no_part_of_a_path_is_left(form, way, written):
    shown = to_public_message("it says " + written.format(form(["QQ" + part for part in way])) + " today", INSTEAD)
    assert "QQ" not in shown
    assert shown.startswith("it says")


@given(st.text() | st.text("/\\.:~ \"'a1\n(", max_size=400))
def test_it_is_one_short_line_whatever_the_text(text):
    shown = to_public_message(text, INSTEAD)
    assert 0 < len(shown) <= MAX_PUBLIC_CHARACTERS
    assert shown.isprintable()
