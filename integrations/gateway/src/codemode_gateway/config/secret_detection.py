"""What of a configuration is a secret. Pure; how secrets are removed from what leaves is `secrets`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode.data.narrowing import is_mapping, list_or_empty

LEAST_OF_ENV = 8
_LEAST = 4

_WORD = re.compile(
    r"tokens?|secrets?|passwords?|passwd|passphrase|passcode|pwd|pass|pin|credentials?|auth|authorization|authentication"
    r"|bearer|cookies?|session|jwt|pat|dsn|keys?|apikeys?|webhook|signature|sig|salt|t?otp|mfa|connectionstring|sas"
)
# Where a secret is kept is none: messages about files need their names.
_PLACES = frozenset({"file", "path", "dir", "folder", "home", "sock", "socket"})
_ENDS = ("token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "secretkey", "credentials")
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FORM = re.compile(
    r"(?:sk|pk|rk)[-_][\w-]{8,}|gh[a-z]_\w{16,}|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|xapp-[\w-]+|A[KS]IA[0-9A-Z]{12,}"
    r"|AIza[\w-]{20,}|ya29\.[\w.-]+|eyJ[\w-]+\.[\w.-]+|hf_\w{16,}|npm_\w{16,}|pypi-[\w-]{16,}|do[a-z]_v1_\w+|shp[a-z]{2}_\w+"
    r"|SG\.[\w.-]{16,}|lin_api_\w+|ntn_\w{16,}|secret_\w{16,}|figd_[\w-]+|pat[\w]{10,}\.\w+|tvly-[\w-]+|BSA[\w-]{20,}"
    r"|(?:Bearer|Basic|Token) \S{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
_RANDOM = re.compile(r"[A-Za-z0-9_\-+=~]{20,}|(?!/)[A-Za-z0-9_\-+=~/]{40,}")
_HEX = re.compile(r"[0-9a-fA-F-]{32,}")
_NAMED = re.compile(r"-{0,2}([A-Za-z][\w.-]*)\s*[=:]\s*(.+)", re.DOTALL)
_PAIR = re.compile(r"([A-Za-z][\w .-]*)=([^;&\s]+)")
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)")


def says_secret(name: str, value: str) -> bool:
    """Return whether a variable of eight characters or more is a secret by its name or its form."""
    return len(value) >= LEAST_OF_ENV and (is_secret_name(name) or is_secret_form(value))


def is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _SPLIT.split(name) if word]
    return not {*words[-1:]} & _PLACES and any(_WORD.fullmatch(word) or word.endswith(_ENDS) for word in words)


def is_secret_form(value: str) -> bool:
    """Return whether a text looks like a key, a token, or a URL with a password."""
    if _FORM.fullmatch(value) or _HEX.fullmatch(value):
        return True
    if "://" in value and password_of(value):
        return True
    if not _RANDOM.fullmatch(value):
        return False
    digits = sum(one.isdigit() for one in value)
    is_mixed = any(one.islower() for one in value) and any(one.isupper() for one in value)
    return digits > 0 and (is_mixed or digits * 5 >= len(value)) and len({*value}) >= 10


def password_of(url: str) -> str | None:
    """Return the password that stands in a URL, as it is written there."""
    try:
        return urlsplit(url).password or None
    except ValueError:
        return None


def of_headers(headers: Mapping[str, str]) -> set[str]:
    """Return all values, and of a credential behind its scheme the credential too."""
    found = set[str]()
    for value in headers.values():
        scheme, _, rest = value.strip().partition(" ")
        found |= {value, value.strip(), rest.strip()} if rest and scheme.isalpha() else {value, value.strip()}
        if scheme.lower() == "basic":
            found |= _of_basic(rest.strip())
    return long_enough(found)


def of_env(env: Mapping[str, str], named: Iterable[str]) -> set[str]:
    """Return the values that name or form says to be secret, and, of any length, those that are ``named``."""
    chosen = {*named}
    found = {value for name, value in env.items() if value and name in chosen}
    for name, value in env.items():
        found |= _inside(value)
        if says_secret(name, value):
            found |= of_headers({name: value})
    return found


def of_args(args: Sequence[str]) -> set[str]:
    """Return what stands behind a flag or a name that says so, and what has the form of a secret."""
    found = set[str]()
    for index, one in enumerate(args):
        flag = _FLAG.fullmatch(args[index - 1]) if index else None
        if flag and not one.startswith("-") and says_secret(flag[1], one):
            found |= of_headers({flag[1]: one})
        found |= _of_argument(one)
    return found


def _of_argument(said: str) -> set[str]:
    named = _NAMED.fullmatch(said)
    if named and says_secret(named[1], named[2]):
        return of_headers({named[1]: named[2]})
    if "://" in said:
        return of_url(said[said.find("=") + 1 :] if said.startswith("-") else said)
    if is_secret_form(said):
        return of_headers({"": said})
    # A flag for headers, or for variables, names its value and has a name inside.
    return _inside(said) | _of_argument(named[2]) if named else _inside(said)


def _inside(value: str) -> set[str]:
    """Return the secrets in a text of several: the JSON of an account, the parts of a connection string, a URL."""
    if value.lstrip().startswith("{"):
        try:
            pairs = _pairs(json.loads(value))
        except (ValueError, RecursionError):
            return set()
    else:
        pairs = [(name.split()[-1], one) for name, one in _PAIR.findall(value)] if ";" in value else []
    found = {one for name, one in pairs if says_secret(name, one)}
    return found | (of_url(value) if "://" in value else set())


def _pairs(value: Any) -> list[tuple[str, str]]:
    items = value.items() if is_mapping(value) else [("", one) for one in list_or_empty(value)]
    return [found for key, one in items for found in ([(key, one)] if isinstance(one, str) else _pairs(one))]


def of_url(url: str) -> set[str]:
    """Return the password, the parameters that say so, and the parts of the path that look like keys."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query)
    except ValueError:
        return set()
    found = {value for name, value in pairs if says_secret(name, value)}
    found |= {part for part in parts.path.split("/") if is_secret_form(part)}
    if password := password_of(url):
        found |= {password, unquote(password)}
    return long_enough(found)


def long_enough(texts: Iterable[str]) -> set[str]:
    """Return those that can be told from common text: a shorter one would be found in every other word."""
    return {one for one in texts if len(one) >= _LEAST}


def _of_basic(credential: str) -> set[str]:
    try:
        said = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        return set()
    return {said, said.partition(":")[2]}
