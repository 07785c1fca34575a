"""Find the secrets in a configuration."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode.data.narrowing import is_mapping, list_or_empty

MIN_VARIABLE_LENGTH = 8
_MIN_LENGTH = 4

_SECRET_WORD = re.compile(
    r"tokens?|secrets?|passwords?|passwd|passphrase|passcode|pwd|pass|pin|credentials?|auth|authorization|authentication"
    r"|bearer|cookies?|session|jwt|pat|dsn|keys?|apikeys?|webhook|signature|sig|salt|t?otp|mfa|connectionstring|sas"
)
# The location of a secret is not secret: messages about files need it.
_LOCATION_WORDS = frozenset({"file", "path", "dir", "folder", "home", "sock", "socket"})
_SECRET_SUFFIXES = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "secretkey",
    "credentials",
)
_WORD_BOUNDARY = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TOKEN_FORMAT = re.compile(
    r"(?:sk|pk|rk)[-_][\w-]{8,}|gh[a-z]_\w{16,}|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|xapp-[\w-]+|A[KS]IA[0-9A-Z]{12,}"
    r"|AIza[\w-]{20,}|ya29\.[\w.-]+|eyJ[\w-]+\.[\w.-]+|hf_\w{16,}|npm_\w{16,}|pypi-[\w-]{16,}|do[a-z]_v1_\w+|shp[a-z]{2}_\w+"
    r"|SG\.[\w.-]{16,}|lin_api_\w+|ntn_\w{16,}|secret_\w{16,}|figd_[\w-]+|pat[\w]{10,}\.\w+|tvly-[\w-]+|BSA[\w-]{20,}"
    r"|(?:Bearer|Basic|Token) \S{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
_RANDOM_FORMAT = re.compile(r"[A-Za-z0-9_\-+=~]{20,}|(?!/)[A-Za-z0-9_\-+=~/]{40,}")
_HEX_FORMAT = re.compile(r"[0-9a-fA-F-]{32,}")
_NAMED_VALUE = re.compile(r"-{0,2}([A-Za-z][\w.-]*)\s*[=:]\s*(.+)", re.DOTALL)
_KEY_VALUE_PAIR = re.compile(r"([A-Za-z][\w .-]*)=([^;&\s]+)")
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)")


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable of at least eight characters is secret, by its name or format."""
    return len(value) >= MIN_VARIABLE_LENGTH and (is_secret_name(name) or is_secret_value(value))


def is_secret_name(name: str) -> bool:
    name_parts = [word.lower() for word in _WORD_BOUNDARY.split(name) if word]
    return not {*name_parts[-1:]} & _LOCATION_WORDS and any(
        _SECRET_WORD.fullmatch(word) or word.endswith(_SECRET_SUFFIXES) for word in name_parts
    )


def is_secret_value(value: str) -> bool:
    """Return whether a text looks like a key, a token, or a URL with a password."""
    if _TOKEN_FORMAT.fullmatch(value) or _HEX_FORMAT.fullmatch(value):
        return True
    if "://" in value and get_url_password(value):
        return True
    if not _RANDOM_FORMAT.fullmatch(value):
        return False
    digits = sum(character.isdigit() for character in value)
    is_mixed = any(character.islower() for character in value) and any(character.isupper() for character in value)
    return digits > 0 and (is_mixed or digits * 5 >= len(value)) and len({*value}) >= 10


def get_url_password(url: str) -> str | None:
    """Return the password in a URL, still encoded, or None."""
    try:
        return urlsplit(url).password or None
    except ValueError:
        return None


def collect_header_secrets(headers: Mapping[str, str]) -> set[str]:
    """Return all header values, and the credentials after an authentication scheme."""
    secrets = set[str]()
    for value in headers.values():
        scheme, _, credentials = value.strip().partition(" ")
        secrets |= (
            {value, value.strip(), credentials.strip()} if credentials and scheme.isalpha() else {value, value.strip()}
        )
        if scheme.lower() == "basic":
            secrets |= _decode_basic_credentials(credentials.strip())
    return drop_short_texts(secrets)


def find_env_secrets(env: Mapping[str, str], secret_names: Iterable[str]) -> set[str]:
    """Return the values that are secret by name or format, and those of ``secret_names`` of any length."""
    chosen = {*secret_names}
    secrets = {value for name, value in env.items() if value and name in chosen}
    for name, value in env.items():
        secrets |= _find_secrets_in_compound_value(value)
        if is_secret_variable(name, value):
            secrets |= collect_header_secrets({name: value})
    return secrets


def find_argument_secrets(args: Sequence[str]) -> set[str]:
    """Return values after a secret flag or name, and arguments in the format of a secret."""
    secrets = set[str]()
    for index, argument in enumerate(args):
        flag = _FLAG.fullmatch(args[index - 1]) if index else None
        if flag and not argument.startswith("-") and is_secret_variable(flag[1], argument):
            secrets |= collect_header_secrets({flag[1]: argument})
        secrets |= _find_secrets_in_argument(argument)
    return secrets


def _find_secrets_in_argument(argument: str) -> set[str]:
    named = _NAMED_VALUE.fullmatch(argument)
    if named and is_secret_variable(named[1], named[2]):
        return collect_header_secrets({named[1]: named[2]})
    if "://" in argument:
        return find_url_secrets(argument[argument.find("=") + 1 :] if argument.startswith("-") else argument)
    if is_secret_value(argument):
        return collect_header_secrets({"": argument})
    # The value of a flag for headers or variables has a name itself.
    return (
        _find_secrets_in_compound_value(argument) | _find_secrets_in_argument(named[2])
        if named
        else _find_secrets_in_compound_value(argument)
    )


def _find_secrets_in_compound_value(value: str) -> set[str]:
    """Return the secrets within JSON credentials, a connection string or a URL."""
    if value.lstrip().startswith("{"):
        try:
            pairs = _list_name_value_pairs(json.loads(value))
        except (ValueError, RecursionError):
            return set()
    else:
        pairs = [(name.split()[-1], value) for name, value in _KEY_VALUE_PAIR.findall(value)] if ";" in value else []
    secrets = {value for name, value in pairs if is_secret_variable(name, value)}
    return secrets | (find_url_secrets(value) if "://" in value else set())


def _list_name_value_pairs(value: Any) -> list[tuple[str, str]]:
    items = value.items() if is_mapping(value) else [("", item) for item in list_or_empty(value)]
    return [
        found
        for key, item in items
        for found in ([(key, item)] if isinstance(item, str) else _list_name_value_pairs(item))
    ]


def find_url_secrets(url: str) -> set[str]:
    """Return the password, secret query parameters, and path segments that look like keys."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query)
    except ValueError:
        return set()
    secrets = {value for name, value in pairs if is_secret_variable(name, value)}
    secrets |= {part for part in parts.path.split("/") if is_secret_value(part)}
    if password := get_url_password(url):
        secrets |= {password, unquote(password)}
    return drop_short_texts(secrets)


def drop_short_texts(texts: Iterable[str]) -> set[str]:
    """Return the texts long enough to search for; shorter ones occur in ordinary words."""
    return {text for text in texts if len(text) >= _MIN_LENGTH}


def _decode_basic_credentials(credential: str) -> set[str]:
    try:
        credentials = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        return set()
    return {credentials, credentials.partition(":")[2]}
