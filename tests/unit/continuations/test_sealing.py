"""The wire form of a continuation: plain, compressed, sealed; what is not ours never gets past the signature."""

from __future__ import annotations

import builtins
import json
import zlib
from base64 import urlsafe_b64encode

import pytest
from suite import each_row

import codemode
from codemode import CodeModeProtocolError, ContinuationOptions, set_continuation_signing_key
from codemode.continuations import sealing
from codemode.continuations.sealing import (
    encode_and_sign_continuation,
    seal_content_part,
    unseal_content_part,
    verify_and_decode_continuation,
)
from codemode.continuations.signing import KeyRing

NOW_MS = 1_700_000_000_000
BODY = ['{"secret":"customer 4711"}', "\u00fc\U0001f600\n", "", "x" * 5000]
FORMS = {
    "json": {},
    "deflate": {"compress": True},
    "sealed": {"seal": True},
    "sealed-deflate": {"seal": True, "compress": True},
}
every_form = pytest.mark.parametrize("form", FORMS)


def options(form="json", keys="key", **settings):
    return ContinuationOptions(keys=keys, **FORMS[form], **settings)


def packed(form="json", **settings):
    return json.loads(json.dumps(encode_and_sign_continuation(BODY, options(form, **settings), NOW_MS)))


def refused(value, given, match=None):
    with pytest.raises(CodeModeProtocolError, match=match):
        verify_and_decode_continuation(value, given, NOW_MS)


@pytest.fixture(autouse=True)
def process_key():
    yield
    set_continuation_signing_key()


@every_form
def test_the_body_comes_back(form):
    value = packed(form)
    assert value["encoding"] == form
    assert verify_and_decode_continuation(value, options(form), NOW_MS)[0] == BODY


@every_form
def test_a_sealed_body_cannot_be_read(form):
    is_readable = "customer 4711" in json.dumps(packed(form))
    assert is_readable == (form == "json")
    plain = zlib.decompress(get_content_bytes(packed(form))) if form == "deflate" else b""
    assert (b"customer 4711" in plain) == (form == "deflate")


def get_content_bytes(value):
    from base64 import urlsafe_b64decode

    return b"".join(map(urlsafe_b64decode, value["body"]))


def test_compression_makes_it_smaller():
    sizes = {form: len(json.dumps(packed(form))) for form in FORMS}
    assert sizes["deflate"] < sizes["sealed-deflate"] < sizes["json"] / 3
    assert sizes["json"] < sizes["sealed"] < sizes["json"] * 1.4


def test_two_seals_of_one_body_differ():
    assert packed("sealed")["body"] != packed("sealed")["body"]


@every_form
def test_other_keys_and_tenants_are_refused(form):
    value = packed(form, conversation_id="tenant a")
    assert verify_and_decode_continuation(value, options(form, conversation_id="tenant a"), NOW_MS)[0] == BODY
    refused(value, options(form, conversation_id="tenant b"), "another conversation")
    refused(value, options(form), "no conversation_id was given")
    refused(value, options(form, keys="other", conversation_id="tenant a"), "not known")


@every_form
def test_keys_rotate(form):
    value = packed(form, keys=["old"])
    assert verify_and_decode_continuation(value, options(form, keys=["old", "new"]), NOW_MS)[0] == BODY
    refused(packed(form, keys=["old", "new"]), options(form, keys=["old"]), "not known")
    refused(value, options(form, keys=["new"]), "not known")


def test_a_host_that_seals_takes_only_sealed_ones():
    for form in ("json", "deflate"):
        refused(packed(form), options("sealed"), "not sealed")
    for form in ("sealed", "sealed-deflate"):
        assert verify_and_decode_continuation(packed(form), options(), NOW_MS)[0] == BODY


@every_form
@pytest.mark.parametrize("field", ["version", "encoding", "body", "auth"])
@pytest.mark.parametrize("wrong", [None, 2, True, 1.0, "", "x", "json", "deflate", "sealed", [], {}])
def test_every_field_is_covered(form, field, wrong):
    value = packed(form)
    if value[field] != wrong or type(value[field]) is not type(wrong):
        refused({**value, field: wrong}, options(form))


@every_form
def test_missing_and_extra_fields_are_refused(form):
    value = packed(form)
    refused({**value, "more": 1}, options(form))
    for field in value:
        refused({key: item for key, item in value.items() if key != field}, options(form))


@every_form
def test_a_truncated_body_is_refused(form):
    value = packed(form)
    if form != "json":
        refused({**value, "body": [*value["body"][:-1], value["body"][-1][:-4]]}, options(form))
    refused({**value, "body": value["body"][:-1]}, options(form))


def resigned(encoding, body, keys=(b"key",)):
    ring = KeyRing(keys, purpose="continuation")
    texts = body if isinstance(body, list) else []
    signed = ring.sign({"version": 2, "encoding": encoding}, texts, nonce="n", now_ms=NOW_MS, max_age_ms=1000)
    return {**signed, "body": body}


def encoded(data):
    return [urlsafe_b64encode(data).decode()]


def framed(data):
    return len(data).to_bytes(8) + data


@each_row(
    "encoding, body",
    [
        ("gzip", []),
        ("deflate", 5),
        ("deflate", {}),
        ("deflate", ""),
        ("deflate", []),
        ("deflate", ["not base64 \u00e9"]),
        ("deflate", encoded(b"no deflate")),
        ("deflate", encoded(zlib.compress(b"no text"))),
        ("deflate", encoded(zlib.compress(framed(b"\xff")))),
        ("deflate", encoded(zlib.compress(framed(b"text")[:-1]))),
        ("deflate", encoded(zlib.compress(framed(b"text") * 100)[:-20])),
        ("deflate", encoded(zlib.compress(framed(b"text")) + b"more")),
        ("sealed", []),
        ("sealed", encoded(b"short")),
        ("sealed", encoded(b"x" * 100)),
        ("sealed-deflate", encoded(b"x" * 100)),
        ({"a": 1}, []),
        (["sealed"], []),
        (None, []),
    ],
)
def test_nonsense_with_a_right_signature_is_refused(encoding, body):
    refused(resigned(encoding, body), options())
    refused(resigned(encoding, body), options("sealed"))


def test_a_sealed_body_does_not_open_under_another_encoding():
    refused(resigned("sealed-deflate", packed("sealed")["body"]), options(), "cannot be opened")


def test_a_body_that_grows_too_much_is_refused(monkeypatch):
    value = packed("deflate")
    monkeypatch.setattr(sealing, "_MAX_BODY_BYTES", 1000)
    refused(value, options(), "cannot be read")


def test_nothing_is_unpacked_before_the_signature_is_checked(monkeypatch):
    def touched(*arguments):
        raise AssertionError("touched")

    value = packed("sealed-deflate")
    monkeypatch.setattr(sealing, "_decode_body", touched)
    refused({**value, "auth": {**value["auth"], "nonce": "other"}}, options())


def test_without_cryptography_sealing_says_what_to_install(monkeypatch):
    value, real = packed("sealed"), builtins.__import__

    def without(name, *arguments):
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"codemode-toolkit\[sealed\]"):
        encode_and_sign_continuation(BODY, options("sealed"), NOW_MS)
    with pytest.raises(ImportError, match=r"codemode-toolkit\[sealed\]"):
        verify_and_decode_continuation(value, options(), NOW_MS)
    assert verify_and_decode_continuation(packed("deflate"), options(), NOW_MS)[0] == BODY
    wrong = {"continuation": {"seal": True}}
    with pytest.raises(ValueError, match=r"continuation\.seal.*codemode-toolkit\[sealed\]"):
        codemode.create_code_mode_tool([], wrong)
    with pytest.raises(ValueError, match=r"continuation\.seal.*codemode-toolkit\[sealed\]"):
        codemode.run_code_mode_sync("return 1", [], options=wrong)


# --- the process-wide key ---


def test_the_process_has_a_key_of_its_own_until_one_is_set():
    own = ContinuationOptions()
    value = encode_and_sign_continuation(BODY, own, NOW_MS)
    assert verify_and_decode_continuation(value, own, NOW_MS)[0] == BODY
    set_continuation_signing_key()
    refused(value, own, "not known")


def test_the_process_key_and_the_age_can_be_set():
    own = ContinuationOptions()
    set_continuation_signing_key(["old", b"new"], max_age_ms=5)
    value = encode_and_sign_continuation(BODY, own, NOW_MS)
    assert value["auth"]["expiresAtMs"] == NOW_MS + 5
    assert verify_and_decode_continuation(value, options(keys="new"), NOW_MS)[0] == BODY
    set_continuation_signing_key("new")
    assert encode_and_sign_continuation(BODY, own, NOW_MS)["auth"]["expiresAtMs"] == NOW_MS + 3_600_000
    assert (
        encode_and_sign_continuation(BODY, ContinuationOptions(max_age_ms=7), NOW_MS)["auth"]["expiresAtMs"]
        == NOW_MS + 7
    )


@each_row("keys", ["", b"", [], [""], ["a", ""], 5, ["a", None]])
def test_an_empty_or_wrong_key_is_refused(keys):
    with pytest.raises(ValueError, match=r"continuation\.keys"):
        set_continuation_signing_key(keys)
    with pytest.raises(ValueError, match=r"continuation\.keys"):
        ContinuationOptions(keys=keys)


def test_keys_do_not_appear_in_a_representation():
    assert "hidden" not in repr(ContinuationOptions(keys="hidden"))


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1200], ids=len)
def test_a_part_of_content_is_read_under_its_own_name_alone(data):
    new = options("sealed", ("old key", "new key"))
    kept = seal_content_part("said \u00fc", data, new, "run part")
    assert unseal_content_part(kept, new, "run part") == ("said \u00fc", data)
    assert len(data) < 2 or data[:64] not in kept
    changed = kept[:-1] + bytes([kept[-1] ^ 1])
    for one, name in ((kept, "run other"), (changed, "run part"), (kept[:20], "run part"), (b"", "run part")):
        with pytest.raises((ValueError, CodeModeProtocolError)):
            unseal_content_part(one, new, name)
    old = seal_content_part("said", data, options("sealed", "old key"), "run part")
    assert unseal_content_part(old, new, "run part") == ("said", data)
    with pytest.raises(CodeModeProtocolError, match="key that is not known"):
        unseal_content_part(kept, options("sealed", "old key"), "run part")
