"""The large strings of one invocation: numbered as they were handed out, put in where they stand, bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode import CodeModeProtocolError
from codemode.data.large_strings import LargeStrings, extract_large_strings
from codemode.errors import CodeModeSerializationError
from codemode.profile import LargeStringRules
from codemode.protocol.invocation import restore_large_strings
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected
from codemode.protocol.messages import CallRequested, DeliverValue
from codemode.protocol.references import MAX_REFERENCES, SIDECAR_LIMIT, LargeStringRegistry

RULES = LargeStringRules(threshold_bytes=4, max_reference_bytes=20, max_total_bytes=50)


def cut(*strings: str) -> LargeStrings:
    large = extract_large_strings(json.dumps([*strings], separators=(",", ":")), 1)
    assert large is not None
    return large


def sidecar_with(*strings: str) -> LargeStringRegistry:
    sidecar = LargeStringRegistry(RULES)
    sidecar.add_strings(cut(*strings))
    return sidecar


def test_strings_are_numbered_over_all_outputs():
    sidecar = sidecar_with("first", "second")
    sidecar.add_strings(cut("th\u00efrd"))
    assert sidecar.decode_json_with_strings('{"a":[0E2,0E0],"b":0E1,"c":0.0}', "it") == {
        "a": ["th\u00efrd", "first"],
        "b": "second",
        "c": 0.0,
    }
    assert sidecar.expand_string_references('[0E2,"0E2"]', "it") == '["th\\u00efrd","0E2"]'


@given(st.lists(st.sampled_from(["0E0", "0E1", "1", '"0E1"', "null"]), max_size=12))
def test_the_length_is_that_of_the_text_with_the_strings_in_it(values: list[str]):
    sidecar, text = sidecar_with("some", "texts"), f"[{','.join(values)}]"
    put_in = 4 * values.count("0E0") + 5 * values.count("0E1")
    if put_in > RULES.max_total_bytes:
        with pytest.raises(CodeModeSerializationError):
            sidecar.decode_json_with_strings(text, "it")
    else:
        assert sidecar.measure_restored_bytes(text) == len(sidecar.expand_string_references(text, "it"))
        assert sidecar.decode_json_with_strings(text, "it") == json.loads(sidecar.expand_string_references(text, "it"))


@pytest.mark.parametrize("text", ["0E2", "[0E0,0E999999999]", '{"a":0E2}'])
def test_a_string_that_was_never_handed_out_breaks_the_protocol(text: str):
    sidecar = sidecar_with("first", "second")
    for read in (sidecar.decode_json_with_strings, sidecar.expand_string_references):
        with pytest.raises(CodeModeProtocolError, match="not given"):
            read(text, "it")
    with pytest.raises(CodeModeProtocolError, match="not given"):
        sidecar.measure_restored_bytes(text)


@pytest.mark.parametrize("text", ["0E", "[0E0", "0E0 0E0", ""])
def test_what_is_no_json_is_told_apart(text: str):
    with pytest.raises(ValueError, match=r".+"):
        sidecar_with("first").decode_json_with_strings(text, "it")


def test_what_goes_into_one_value_is_bounded_before_it_is_there():
    sidecar = sidecar_with("x" * 20)
    assert sidecar.decode_json_with_strings("[0E0,0E0]", "it") == ["x" * 20] * 2
    for read in (sidecar.decode_json_with_strings, sidecar.expand_string_references):
        with pytest.raises(CodeModeSerializationError) as caught:
            read(f"[{','.join(['0E0'] * 200_000)}]", "it")
        assert caught.value.code == SIDECAR_LIMIT
        assert caught.value.details == {"limit": "maxTotalSize", "max_bytes": 50}


def test_an_output_that_goes_beyond_the_total_is_refused_and_changes_nothing():
    sidecar = sidecar_with("x" * 20, "y" * 20)
    assert sidecar.find_limit_error(cut("z" * 10)) is None
    refused = sidecar.find_limit_error(cut("z" * 11))
    assert refused is not None
    assert (refused.code, refused.details["bytes"], refused.details["limit"]) == (SIDECAR_LIMIT, 51, "maxTotalSize")
    assert sidecar.find_limit_error(cut("z" * 10)) is None
    assert (
        sidecar.find_limit_error(LargeStrings(('""',) * (MAX_REFERENCES - 1), (0,) * (MAX_REFERENCES - 1), ""))
        is not None
    )


@pytest.mark.parametrize(
    ("output", "refused"), [("abc", False), ("x" * 20, False), ("x" * 21, True), ("\u00e9" * 11, True)]
)
def test_one_string_is_bounded_by_its_bytes(output: str, refused: bool):
    text = json.dumps({"a": output})
    if not refused:
        assert (LargeStringRegistry(RULES).extract_strings(text) is None) == (len(output) < RULES.threshold_bytes)
        return
    with pytest.raises(CodeModeSerializationError) as caught:
        LargeStringRegistry(RULES).extract_strings(text)
    assert (caught.value.code, caught.value.details["limit"]) == (SIDECAR_LIMIT, "maxReferenceSize")


def entry(number: int, name: str, text: str | None, outcome: Any = None) -> LedgerEntry:
    return LedgerEntry(number, "tool", name, text, outcome=outcome, now_ms=1)


def test_a_recorded_ledger_has_its_strings_in_the_order_of_deliveries():
    recorded = Ledger(
        [
            entry(1, "late", "{}", Fulfilled('"late text"')),
            entry(2, "early", "{}", Fulfilled('{"a":"early text","b":1}')),
            entry(3, "failed", "{}", Rejected("Error", "m", "c")),
            entry(4, "never", "{}", Fulfilled('"not handed"')),
            entry(5, "takes", '{"both":[0E1,0E0]}'),
        ],
        [2, 3, 1],
        7,
    )
    again = restore_large_strings(recorded, RULES)
    assert again.entries[4].decode_full_input() == {"both": ["late text", "early text"]}
    assert again.entries[4].full_input_json == '{"both":["late text","early text"]}'
    assert (again.deliveries, again.notice_count) == ([2, 3, 1], 7)
    assert again.entries[0].decode_full_input() == {}
    assert [one.make_delivery_message().to_frame()[4:5] for one in again.entries[:3]] == [b"S", b"S", b"D"]
    assert recorded.sidecar is None


def test_a_text_that_the_program_has_is_sent_as_its_number():
    ledger = Ledger([entry(1, "a", "{}"), entry(2, "b", "{}")], sidecar=LargeStringRegistry(RULES))
    assert ledger.sidecar is not None
    frames: list[bytes] = []
    for request_id, text in ((1, '["text one","text two","text one"]'), (2, '{"again":"text two","new":"three"}')):
        ledger.record_outcome(request_id, Fulfilled(text, ledger.sidecar.extract_strings(text)), 1)
        handed = ledger.register_large_strings(ledger[request_id])
        assert ledger[request_id] is handed
        frames.append(handed.make_delivery_message().to_frame())
    assert b'S"text one"' in frames[0]
    assert b'S"text two"' in frames[0]
    assert frames[0].count(b"text one") == 1
    assert b"S\x30" in frames[0]
    assert b"text two" not in frames[1]
    assert b"S\x31" in frames[1]
    one, two = "text one", "text two"
    assert ledger.sidecar.decode_json_with_strings("[0E0,0E1,0E2,0E3,0E4]", "it") == [one, two, one, two, "three"]
    texts = [one.outcome.value_json for one in ledger.entries if isinstance(one.outcome, Fulfilled)]
    recorded = [entry(at, "t", "{}", Fulfilled(text)) for at, text in enumerate(texts, 1)]
    again = restore_large_strings(Ledger(recorded, [1, 2]), RULES)
    assert [one.make_delivery_message().to_frame() for one in again.entries] == frames


def test_a_request_that_cannot_have_places_is_read_as_any():
    ledger = Ledger(sidecar=sidecar_with("first"))
    for kind, text, has in (
        ("tool", '["0E0"]', True),
        ("tool", "[1]", False),
        ("fetch", "[0E0]", False),
        ("tool", None, False),
    ):
        request = CallRequested(1, kind, "t", text, None)  # pyright: ignore[reportArgumentType]
        assert (ledger.create_entry(request, None).sidecar is not None) is has
    assert Ledger().create_entry(CallRequested(1, "tool", "t", "[0E0]", None), None).decode_full_input() == [0.0]


def test_the_bytes_of_a_long_input_are_those_that_were_sent():
    sidecar = sidecar_with("x" * 20)
    short, long = "[0E0]", f'[0E0,"{"y" * 20_000}"]'
    assert entry(1, "t", short)._replace(sidecar=sidecar).full_input_bytes == len("[]") + 22
    assert entry(1, "t", long)._replace(sidecar=sidecar).full_input_bytes == len(long)
    assert entry(1, "t", None).full_input_bytes == 0
    assert entry(1, "t", '"\u00e9"').full_input_bytes == 4


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=6))
def test_a_delivery_is_the_same_at_once_and_in_pieces(lengths: list[int]):
    texts = tuple(f'"{"x" * length}"' for length in lengths)
    rest = f"[{','.join(f'0E{at}' for at in range(len(texts)))}]"
    message = DeliverValue(1, 2, f"[{','.join(texts)}]", LargeStrings(texts, tuple(lengths), rest))
    pieces = [*message.iter_encoded_chunks()]
    assert all(pieces)
    assert b"".join(pieces) == message.to_frame()
    data, frames = message.to_frame(), list[bytes]()
    while data:
        end = 4 + int.from_bytes(data[:4])
        frames.append(data[4:end])
        data = data[end:]
    assert [*map(bytes.decode, frames[:-1])] == ["S" + text for text in texts]
    assert json.loads(frames[-1][1:]) == {"id": 1, "now": 2, "sizes": lengths, "value": [0.0] * len(texts)}
