"""What of a configuration is a secret, and that no secret is in anything that is said about it."""

from __future__ import annotations

import base64
import copy
import traceback
from typing import Any

import pytest
from codemode_gateway import ConfigError, ServerConfig, load_config, matches
from codemode_gateway.config.secret_detection import is_secret_name, is_secret_value
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

SECRET = "s3cr3t-that-nobody-reads"


def secrets_of(entry: dict[str, Any], **environ: str) -> set[str]:
    found = load_config({"mcpServers": {"a": entry}}, environ=environ, inputs={"i": "typed"})
    assert [str(one) for one in found.problems] == []
    assert {*found.secrets} == {*found.servers[0].secrets}
    return {*found.servers[0].secrets}


def test_all_values_of_headers_and_credentials_behind_their_scheme():
    basic = base64.b64encode(b"me:open-sesame").decode()
    entry = {"url": "http://h", "headers": {"Authorization": f"Basic {basic}", "X-Any": "plain", "Cookie": "a=b; c=d"}}
    assert secrets_of(entry) == {f"Basic {basic}", basic, "me:open-sesame", "open-sesame", "plain", "a=b; c=d"}
    assert secrets_of({"url": "http://h", "headers": {"Authorization": "Bearer abcd"}}) == {"Bearer abcd", "abcd"}


@each_row("name", [
        "TOKEN", "GITHUB_TOKEN", "githubToken", "API_KEY", "APIKEY", "OPENAI_API_KEY", "apiKey", "SECRET",
        "CLIENT_SECRET",
        "DB_PASSWORD", "PGPASSWORD", "PASSWD", "MYSQL_PWD", "PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "CREDENTIALS",
        "X-AUTH", "SESSION", "COOKIE", "JWT", "SENTRY_DSN", "SLACK_WEBHOOK", "BEARER", "GITHUB_PAT", "PRIVATE_KEY",
    ])  # fmt: skip
def test_a_name_says_so(name: str):
    assert secrets_of({"command": "x", "env": {name: "eight888"}}) == {"eight888"}
    assert secrets_of({"command": "x", "env": {name: "seven77"}}) == set()
    assert secrets_of({"command": "x", "env": {"PLAIN": f"${{{name}}}"}} if name.isidentifier() else
                      {"command": "x", "env": {name: "eight888"}}, **{name: "eight888"}) == {"eight888"}  # fmt: skip


@each_row("name",
    ["PATH", "HOME", "LANG", "LOG_LEVEL", "NODE_ENV", "KEYBOARD_LAYOUT", "AUTHOR", "TOKENIZERS_PARALLELISM", "PASSAGE",
     "GOOGLE_CREDENTIALS_FILE", "SSH_AUTH_SOCK", "SECRETARY", "MONKEY"])  # fmt: skip
def test_a_name_says_nothing(name: str):
    assert not is_secret_name(name)
    assert secrets_of({"command": "x", "env": {name: "something long"}}) == set()


@each_row("value", [
        "sk-abcdefghij0123456789", "ghp_" + "a1" * 18, "github_pat_11ABC_def", "glpat-abcdefgh",
        "xoxb-1-2-abc", "AKIA" + "A1" * 8,
        "AIza" + "x9" * 15, "hf_" + "aB" * 10, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "postgres://me:pw12@host/db",
        "0123456789abcdef0123456789abcdef", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aB3dE5fG7hI9jK1lM3nO",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "Bearer abcdefghijk",
    ])  # fmt: skip
def test_a_form_says_so(value: str):
    assert is_secret_value(value)
    assert value in secrets_of({"command": "x", "env": {"PLAIN": value}})


@each_row("value", ["production", "/usr/local/bin:/usr/bin", "https://host.example/a/b?c=d",
     "a plain sentence of words", "en_US.UTF-8",
     "some-very-long-hyphenated-name-of-a-thing", "@modelcontextprotocol/server-filesystem", "1234567890", "true", "",
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"])  # fmt: skip
def test_a_form_says_nothing(value: str):
    assert not is_secret_value(value)
    assert secrets_of({"command": "x", "env": {"PLAIN": value}}) == set()


@each_row(
    "value, part",
    [
        ("Bearer abcdefghijk", "abcdefghijk"),
        ("Basic " + base64.b64encode(b"me:open-sesame").decode(), "open-sesame"),
        (
            '{"type": "service", "keys": [{"private_key": "-----BEGIN PRIVATE KEY-----\\nabc"}]}',
            "-----BEGIN PRIVATE KEY-----\nabc",
        ),
        ("AccountName=me;AccountKey=abcdefgh==;Suffix=core", "abcdefgh=="),
        ("redis://:open%21sesame@h:1/0", "open!sesame"),
        ("https://h/?api_key=abcdefgh", "abcdefgh"),
    ],
)
def test_a_part_of_a_value_is_a_secret_by_itself(value: str, part: str):
    for name in ("PLAIN", "SETTINGS"):
        assert part in secrets_of({"command": "x", "env": {name: value}})


def test_what_variables_of_keyring_and_input_bring_and_what_is_named():
    assert secrets_of({"command": "x", "args": ["--name=${input:i}"]}) == {"typed"}
    own = {"secrets": ["NICKNAME"]}
    assert secrets_of({"command": "x", "env": {"NICKNAME": "bo", "OTHER": "al"}, "codemode": own}) == {"bo"}


@each_row(
    "args, expected",
    [
        (["--token", "abcdefgh"], {"abcdefgh"}),
        (["--api-key=abcdefgh"], {"abcdefgh"}),
        (["-e", "GITHUB_TOKEN=abcdefgh"], {"abcdefgh"}),
        (["--header", "Authorization: Bearer abcdefgh"], {"Bearer abcdefgh", "abcdefgh"}),
        (["ghp_" + "a1" * 18], {"ghp_" + "a1" * 18}),
        (["postgres://me:open@h/db"], {"open"}),
        (["--url=https://h/?token=abcdefgh"], {"abcdefgh"}),
        (["--header=Authorization: Bearer abcdefgh"], {"Bearer abcdefgh", "abcdefgh"}),
        (["--header=X-Api-Key:abcdefgh"], {"abcdefgh"}),
        (["--env=API_TOKEN=abcdefgh"], {"abcdefgh"}),
        (["Server=h;User Id=me;Password=abcdefgh;Pooling=true"], {"abcdefgh"}),
        (['{"user": "me", "auth": {"token": "abcdefgh"}}'], {"abcdefgh"}),
        (["--token", "--verbose", "--port", "12345678"], set()),
        (["-y", "@scope/some-server", "--root", "/a/long/path"], set()),
    ],
)
def test_what_stands_in_arguments(args: list[str], expected: set[str]):
    assert secrets_of({"command": "x", "args": args}) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h/mcp?api_key=abcdefgh&x=abcdefgh1", {"abcdefgh"}),
        ("https://me:p%40ss@h/mcp", {"p%40ss", "p@ss"}),
        ("https://h/s/0123456789abcdef0123456789abcdef/mcp", {"0123456789abcdef0123456789abcdef"}),
        ("https://mcp.example.com/a/b", set()),
    ],
)
def test_what_stands_in_a_url(url: str, expected: set[str]):
    assert secrets_of({"url": url}) == expected


# What goes wrong, at each place where a secret may stand.
WRONG: list[dict[str, Any]] = [
    {"command": SECRET, "type": SECRET},
    {"command": SECRET, "url": SECRET},
    {"url": SECRET},
    {"url": f"http://{SECRET}:{SECRET}@h:port"},
    {"url": "http://h", "headers": {"Authorization": f"{SECRET}\n"}},
    {"url": "http://h", "headers": {"A": [SECRET]}},
    {"command": "x", "args": SECRET},
    {"command": "x", "args": [[SECRET]]},
    {"command": "x", "env": SECRET},
    {"command": "x", "env": {"A": {SECRET: SECRET}}},
    {"command": "x", "env": {"A": "${env:KEY}\0"}},
    {"command": "x", "timeout": SECRET},
    {"command": "x", "disabled": SECRET},
    {"command": "x", "cwd": [SECRET]},
    {"command": "x", "autoApprove": SECRET},
    {"command": "x", "codemode": SECRET},
    {"command": "x", "codemode": {"approval": SECRET}},
    {"command": "x", "codemode": {"approval": {"a": SECRET}}},
    {"command": "x", "codemode": {"timeoutMs": "${env:KEY}"}},
    {"command": "x", "codemode": {"auth": {"clientSecret": [SECRET]}}},
    {"command": "x", "codemode": {"auth": {"clientSecret": SECRET, "other": SECRET}}},
    {"command": "x", "codemode": {"pin": "${input:i}"}},
    {"command": "${env:KEY}", "args": ["${env:NOT_SET}"]},
]


@each_row("entry", WRONG)
def test_no_secret_is_in_a_problem(entry: dict[str, Any]):
    said = {"mcpServers": {"a": entry}}
    found = load_config(said, environ={"KEY": SECRET}, inputs={"i": SECRET})
    assert len(found.problems) == 2
    assert SECRET not in repr(found) + "".join(map(str, found.problems))


WRONG_AT_THE_TOP: list[Any] = [
    SECRET,
    {"keys": {"a": SECRET}},
    {"keys": [[SECRET]]},
    {"store": SECRET},
    {"auth": {"tokens": SECRET}},
    {"auth": {"console": [SECRET]}},
    {"auth": {"console": SECRET, "consol": SECRET}},
    {"limits": {"timeoutMs": SECRET}},
    {"limits": {"timeoutMs": "${input:i}"}},
    {"toolName": f"{SECRET} "},
    {"output": "${input:i}"},
    {"clients": {"a": SECRET}},
]


@each_row("top", WRONG_AT_THE_TOP)
def test_no_secret_is_in_an_error(top: Any):
    with pytest.raises(ConfigError) as caught:
        load_config({"codemode": top, "mcpServers": {}}, environ={}, inputs={"i": SECRET})
    shown = "".join(traceback.format_exception(caught.value, chain=True))
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(line for line in shown.splitlines() if "Error" in line)


WHOLE: dict[str, Any] = {
    "inputs": [{"id": "i", "default": "x"}],
    "mcpServers": {
        "a": {
            "command": "x", "args": ["--flag", "value"], "env": {"A": "b"}, "cwd": "/", "timeout": 30,
            "disabled": False, "type": "stdio", "autoApprove": ["a"], "disabled_tools": ["b"], "env_vars": ["PATH"],
            "codemode": {
                "approval": {"*": "never", "a": "always"}, "tools": {"allow": ["a"], "deny": ["b"]}, "timeoutMs": 5,
                "connectTimeoutMs": 5, "maxConcurrency": 5, "idleMs": 500, "sharing": "user", "pin": "off",
                "outputValidation": "strict",
                "approvalWaitMs": 5, "secrets": ["A"], "auth": {"clientId": "c", "scopes": ["s"], "callbackPort": 80},
            },
        },
        "b": {"url": "https://host/mcp", "headers": {"X-A": "b"}, "oauth": {"clientId": "c"}, "transport": "http"},
    },
    "codemode": {
        "approval": "never", "keys": ["a key of the tests, of 32 bytes."], "journal": True, "toolName": "x",
        "output": "text", "limits": {"timeoutMs": 5}, "clients": {"c": {"toolName": "x", "asks": "console"}},
        "learn": False, "auth": {"console": "a token of some length", "issuer": "https://host", "scopes": ["s"]},
        "passThrough": True,
    },
}  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(one for key, inner in items for one in leaves(inner, (*path, key)))]


@given(
    st.sampled_from(leaves(WHOLE)[1:]),
    st.sampled_from([SECRET, f"{SECRET}\0", [SECRET], {"k": SECRET}, f"${{{SECRET}", f"x${{no}}{SECRET}"]),
)
def test_no_secret_is_told_wherever_it_stands(place: tuple[Any, ...], value: Any):
    said = copy.deepcopy(WHOLE)
    holder = said
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    try:
        found = load_config(said, environ={"PATH": SECRET})
    except ConfigError as problem:
        assert SECRET not in str(problem)
    else:
        assert SECRET not in repr(found) + "".join(map(str, found.problems))


def test_the_whole_has_no_mistake():
    found = load_config(WHOLE, environ={})
    assert (len(found.servers), found.problems) == (2, ())


def test_no_secret_is_in_what_is_shown_of_a_configuration():
    key = f"{SECRET}, and more of it"
    top = {"keys": [key], "auth": {"console": SECRET}, "store": f"postgresql://me:{SECRET}@h/d"}
    entry = {
        "command": "x",
        "args": [f"--token={SECRET}"],
        "env": {"TOKEN": SECRET},
        "codemode": {"auth": {"clientSecret": SECRET}},
    }
    remote = {"url": f"https://h/?token={SECRET}", "headers": {"A": SECRET}}
    found = load_config({"codemode": top, "mcpServers": {"a": entry, "b": remote}}, environ={})
    assert len(found.servers) == 2
    assert {*found.secrets} == {SECRET, key}
    for shown in (found, found.settings, *found.servers):
        assert SECRET not in repr(shown) + str(shown) + f"{shown}"


@pytest.mark.parametrize(
    "text", ['{"a": "%s\n', '{"a": %s}', '{"%s" 1}', "{'%s'}", '{"a": ["%s" "%s"]}', '{"\\q%s": 1}', "%s"]
)
def test_no_secret_is_in_a_mistake_of_syntax(text: str, tmp_path: Any):
    for name in ("mcp.json", "mcp.toml"):
        (tmp_path / name).write_text(text.replace("%s", SECRET))
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / name)
        assert SECRET not in str(caught.value)


@each_row("pattern, name, expected", [
        ("read", "read", True), ("read", "read_file", False), ("read*", "read", True), ("read*", "read_file", True),
        ("*", "", True), ("*", "x", True), ("*file", "read_file", True), ("*file", "files", False), ("a*a", "a", False),
        ("a*a", "aa", True), ("a*b*c", "axxbyyc", True), ("a*b*c", "acb", False), ("**", "x", True), ("", "", True),
        ("", "x", False), ("READ", "read", False), ("a?c", "abc", False), ("a.c", "abc", False), ("[a]", "a", False),
        ("ab*ba", "aba", False), ("*ab*ab*", "ab", False), ("*a*", "bab", True),
    ])  # fmt: skip
def test_a_pattern(pattern: str, name: str, expected: bool):
    assert matches(pattern, name) is expected


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab", max_size=10))
def test_a_pattern_is_what_its_parts_in_order_say(pattern: str, name: str):
    def slow(said: str, left: str) -> bool:
        if not said:
            return not left
        if said[0] == "*":
            return any(slow(said[1:], left[index:]) for index in range(len(left) + 1))
        return left[:1] == said[0] and slow(said[1:], left[1:])

    assert matches(pattern, name) is slow(pattern, name)


def test_a_server_made_by_hand_shows_no_secret():
    assert SECRET not in repr(
        ServerConfig("a", "http", url=f"http://{SECRET}", headers={"A": SECRET}, secrets=(SECRET,))
    )
