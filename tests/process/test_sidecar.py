"""Large strings of tools as references in a script: what they are there, and what comes of them where they go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from large_texts import GIVEN, OTHER, TEXT, LargeTexts, answer, error, result

from codemode import Tool, create_code_call_tools, create_code_mode_tool
from codemode.protocol import framing, messages, reading
from codemode.workers import channel

READ = "const given = await callTool('read'), { text } = given;"

# Each says the same of a reference as of the string itself.
SAME = [
    "t.length",
    "t[0] + t[5] + t[t.length - 1]",
    "t[-1]",
    "t[1e9]",
    "t['01']",
    "t['1.5']",
    "t[2 ** 53]",
    "t.at(-2)",
    "t.charAt(3)",
    "t.charCodeAt(9)",
    "t.codePointAt(20)",
    "t.slice(0, 30)",
    "t.slice(-30, -3)",
    "t.substring(5, 50)",
    "t.substr(-10, 5)",
    "t.indexOf('end')",
    "t.lastIndexOf('end')",
    "t.includes('\\u4e16')",
    "t.startsWith('0E0')",
    "t.endsWith('end\\n')",
    "t.search(/\\\\/)",
    "t.split('\\n').length",
    "t.split('\\n', 2)",
    "t.match(/end/g).length",
    "t.match(/e(n)d/).index",
    "[...t.matchAll(/(e)nd/g)].length",
    "t.replace('end', 'x').length",
    "t.replaceAll('end', (found) => found.toUpperCase()).slice(0, 99)",
    "t.trim().length",
    "t.trimEnd().length",
    "t.toUpperCase().slice(0, 50)",
    "t.toLowerCase().length",
    "t.concat('!', 1).slice(-5)",
    "t.repeat(2).length",
    "t.padEnd(t.length + 3, '-').slice(-5)",
    "t.normalize('NFD').length",
    "t.isWellFormed()",
    "t.toWellFormed().length",
    "t.localeCompare('0')",
    "t.toString().length",
    "t.valueOf().length",
    "t.toLocaleString().length",
    "[...t].length",
    "Array.from(t).slice(17, 24)",
    "Array.from(t, (one) => one.length).length",
    "new Set(t).size",
    "(() => { const [a, b, ...rest] = t; return [a, b, rest.length]; })()",
    "(() => { const { length, 3: d } = t; return [length, d]; })()",
    "(() => { let n = 0; for (const one of t) n += one.codePointAt(0); return n; })()",
    "t[Symbol.iterator]().next().value",
    "'length' in Object(t)",
    "5 in Object(t)",
    "1e9 in Object(t)",
    "'slice' in Object(t)",
    "'nothing' in Object(t)",
    "t === t",
    "[t].includes(t)",
    "[1, t].indexOf(t)",
    "new Map([[t, 1]]).get(t)",
    "Object.is(t, t)",
    "t !== given.other",
    "(() => { switch (t) { case given.text: return 'text'; default: return 'none'; } })()",
    "t ? 1 : 2",
    "!t",
    "t ?? 1",
    "t || 1 ? 1 : 2",
    "JSON.stringify(t).length",
    "JSON.stringify([t, 1]).length",
    "JSON.stringify({ a: { t } }, null, 1).length",
    "t.nothing",
    "t.then",
    "Object.prototype.toString.call(t)",
    "t.constructor === String",
    "t.slice === undefined",
    "JSON.parse(given.numbers).big",
    "JSON.parse(given.numbers, (k, v) => v).numbers[1999]",
    "t.anchor('a').length",
    "'a'.concat(t.slice(0, 3))",
]


@pytest.mark.parametrize("say", SAME)
def test_a_reference_says_what_the_string_says(say: str):
    plain, on = f"const t = text; return {say}", {"max_resolved_size": 100_000_000}
    of_reference = result(f"{READ} {plain}", on)
    of_string = result(f"{READ} {plain}", {"enabled": False})
    assert of_reference == of_string


METHODS = """
const isMethod = (name) => name !== 'constructor' && name !== 'length';
const names = Object.getOwnPropertyNames(String.prototype).filter(isMethod);
const inputs = [[], [3], [3, 8], ['end'], ['end', 'x'], [/e/g], [/e/g, 'x'], [undefined], [null, 1]];
const said = (t, name, input) => {
  try {
    const value = t[name](...input);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? [...value].length : value;
  } catch (error) { return error.name + ': ' + error.message; }
};
const t = given.text;
const all = names.map((name) => [name, ...inputs.map((input) => said(t, name, input))]);
return all.map((one) => JSON.stringify(one).slice(0, 300));
"""


def test_every_method_of_strings_does_what_it_does():
    on = {"max_resolved_size": 1 << 30}
    listed = result(READ + METHODS, on)
    assert len(listed) > 40
    assert listed == result(READ + METHODS, {"enabled": False})


CONVERSIONS = [
    "t + ''",
    "'' + t",
    "t + t",
    "t + 1",
    "t + null",
    "`${t}`",
    "`a${t}b`",
    "t < 'a'",
    "t > t",
    "t <= 1",
    "t == 'a'",
    "t != 1",
    "+t",
    "-t",
    "t - 1",
    "t * 2",
    "~t",
    "t | 0",
    "String(t)",
    "Date.parse(t)",
    "Number(t)",
    "parseInt(t)",
    "BigInt(t)",
    "isNaN(t)",
    "({})[t]",
    "({ [t]: 1 })",
    "[t].join()",
    "[t, t].toString()",
    "String.raw({ raw: [t] })",
    "'abc'.includes(t)",
    "'abc'.concat(t)",
    "'abc'.replace('b', t)",
    "'a'.split(t)",
    "/x/.test(t)",
    "/x/.exec(t)",
    "new RegExp(t)",
    "new Error(t)",
    "new Date(t)",
    "encodeURIComponent(t)",
    "[t, t].sort()",
    "Symbol(t)",
    "Math.max(t)",
    "String.prototype.slice.call(t, 1)",
    "t[Symbol.toPrimitive]('string')",
    "t.includes(t)",
    "t.startsWith(given.other)",
    "`${[t]}`",
    "t.localeCompare(t)",
    "Object.fromEntries([[t, 1]])",
    "t in {}",
]


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_no_conversion_makes_a_string_of_it_unasked(convert: str):
    said = result(
        f"{READ} const t = text; try {{ {convert}; return 'done'; }} catch (e) {{ return [e.name, e.message]; }}"
    )
    assert said[0] == "TypeError", said
    assert "toString()" in said[1]


@pytest.mark.parametrize("convert", [one for one in CONVERSIONS if "RegExp" not in one and "Primitive" not in one])
def test_with_composites_it_converts_as_the_string_does(convert: str):
    js = f"""{READ} const t = text;
    const isOther = (value) => typeof value === 'object' || typeof value === 'symbol';
    const said = (value) => (isOther(value) ? typeof value : String(value).slice(0, 200));
    try {{ return said({convert}); }} catch (e) {{ return [e.name, e.message.slice(0, 100)]; }}"""
    on = {"allow_composites": True, "max_resolved_size": 1 << 26}
    assert result(js, on) == result(js, {"enabled": False})


def test_a_joined_string_is_an_ordinary_one():
    more = "joined.length - text.length, joined === text.toString() + '!'"
    js = f"{READ} const joined = text + '!'; return [typeof joined, {more}]"
    assert result(js, {"allow_composites": True}) == ["string", 1, True]


@pytest.mark.parametrize(
    ("js", "said"),
    [
        ("typeof text", "object"),
        ("text === given.deep[0].in[0]", False),
        ("text === text.toString()", False),
        ("text instanceof String", True),
        ("Object.keys(text)", []),
        ("({ ...text })", {}),
        ("Object.assign({ a: 1 }, text)", {"a": 1}),
        ("Object.isFrozen(text)", True),
        ("Reflect.ownKeys(text)", []),
        ("Reflect.set(text, 'x', 1)", False),
        ("Reflect.defineProperty(text, 'length', { value: 1 })", False),
        ("Reflect.setPrototypeOf(text, null)", False),
        ("Reflect.deleteProperty(text, 'length')", True),
        ("Object.getPrototypeOf(text) === String.prototype", True),
        ("typeof given.short", "string"),
        ("typeof given.numbers", "object"),
        ("Array.isArray(text)", False),
        ("[].concat(text).length", 1),
    ],
)
def test_it_is_an_object_of_its_own(js: str, said: Any):
    assert result(f"{READ} return {js}") == said


TRICKS = [
    "text.toString = () => 'mine'",
    "text.length = 1",
    "text[0] = 'x'",
    "text.slice.call = 1",
    "text.slice.prototype.x = 1",
    "Object.defineProperty(text, 'x', { value: 1 })",
    "Object.setPrototypeOf(text, {})",
    "text.__proto__.slice = 1",
    "text.slice.call('abc')",
    "text.slice.call({})",
    "text.toString.call(Object.create(text))",
    "text.slice.call(new Proxy(text, {}))",
    "Object.create(text).slice(1)",
    "new Proxy(text, {}).slice(1)",
    "delete text.length && text.call()",
    "text()",
    "new text()",
    "text.toJSON.call({})",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_of_it_can_be_changed_or_used_for_another(trick: str):
    js = f"{READ} try {{ {trick}; }} catch (e) {{ return [e.name, text.length, text.slice(0, 3), 'abc'.slice(1)]; }}"
    said = result(js)
    assert said == ["TypeError", len(TEXT.encode("utf-16-le")) // 2, "0E0", "bc"]


# --- where it goes ---


def test_tools_get_the_text_at_any_depth_and_by_any_call():
    texts = LargeTexts()
    js = f"""{READ}
    await callTool('docs.store', {{ text }});
    await docs.store({{ text, more: [{{ deep: [given.other, text, 'plain'] }}] }});
    await callTool('take', text);
    await callTool('take', [[[text]]], {{ throwOnError: false }});
    await callTool('take', given);
    return (await callTool('take', {{ toJSON() {{ return {{ made: text }}; }} }})).taken"""
    assert texts.code_call().execute_sync({"script": js})["result"] == 6
    assert texts.taken == [
        {"text": TEXT},
        {"text": TEXT, "more": [{"deep": [OTHER, TEXT, "plain"]}]},
        TEXT,
        [[[TEXT]]],
        GIVEN,
        {"made": TEXT},
    ]


WITH_SAME = {"text": TEXT, "same": True}


@pytest.mark.parametrize(
    ("js", "returned"),
    [
        ("text", TEXT),
        ("[text, text, given.other]", [TEXT, TEXT, OTHER]),
        ("given", GIVEN),
        ("({ toJSON() { return text; } })", TEXT),
        ("new Map([[1, text]]).get(1)", TEXT),
        ("Promise.resolve(text)", TEXT),
        ("[text, 9007199254740993n, Object(5n), 1.5, -0, 1e21, 0]", [TEXT, 2**53 + 1, 5, 1.5, 0, 1e21, 0]),
        ("({ text, get same() { return JSON.stringify(text) === JSON.stringify(text.slice(0)); } })", WITH_SAME),
        ("({ [text.slice(0, 3)]: text })", {"0E0": TEXT}),
        ("JSON.parse(JSON.stringify({ text })).text", TEXT),
        ("given.text.slice(0)", TEXT),
    ],
)
def test_what_is_returned_has_the_text_in_it(js: str, returned: Any):
    assert result(f"{READ} return {js}") == returned


def test_a_result_that_is_cut_keeps_its_texts():
    js = f"{READ} const cyclic = {{ text, error: new Error('x') }}; cyclic.self = cyclic; return [cyclic, given.other]"
    answered = answer(js)
    assert answered["result"] == [{"text": TEXT, "error": "Error: x", "self": "[Circular]"}, OTHER]
    assert len(answered["warnings"]) == 2


def test_a_reference_is_one_member_and_no_level_of_a_result():
    on = {"vm": {"preset": "balanced", "max_sanitize_depth": 1, "max_sanitize_properties": 3}}
    answered = answer(f"{READ} return [text, text, text]", **on)
    assert answered == {"status": "ok", "result": [TEXT] * 3}
    assert "warnings" in answer(f"{READ} return [text, text, text, text]", **on)


def test_the_text_crosses_once_and_never_back(monkeypatch: pytest.MonkeyPatch):
    came: list[int] = []

    def counted(kind: bytes, payload: bytes) -> Any:
        came.append(len(payload))
        return reading.read_message(kind, payload)

    monkeypatch.setattr(channel, "read_message", counted)
    js = f"{READ} await callTool('docs.store', given); await callTool('take', [text, text]); return [text, given]"
    texts = LargeTexts()
    assert texts.code_call().execute_sync({"script": js})["result"] == [TEXT, GIVEN]
    assert texts.taken == [GIVEN, [TEXT, TEXT]]
    assert sum(came) < 6000


def test_a_text_that_comes_back_from_a_tool_is_another_reference_to_the_same_text(monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []
    real = framing.frame_in_pieces

    def counted(*given: Any) -> Any:
        for piece in real(*given):
            sent.append(len(piece))
            yield piece

    monkeypatch.setattr(messages, "frame_in_pieces", counted)
    text = TEXT * 50
    tools = [Tool("read", execute=lambda _value: text), Tool("echo", execute=lambda value: {"back": [value, value]})]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True}})
    js = """const text = await callTool('read'), { back } = await callTool('echo', text);
    const again = await callTool('echo', { text: back[1] });
    return [text, back, again, text === back[0], back[0] === back[1], text.slice(3, 9) === back[1].slice(3, 9),
      text.length === again.back[0].text.length]"""
    back = {"text": text}
    said = code_call.execute_sync({"script": js})["result"]
    assert said == [text, [text, text], {"back": [back, back]}, False, False, True, True]
    assert len(json.dumps(text)) < sum(sent) < len(json.dumps(text)) + 5000


@pytest.mark.parametrize(
    "forged",
    [
        "'0E0'",
        "'\"0E0\"'",
        "({ a: '0E0', '0E1': 1 })",
        "['0E', 0, -0, 0e0]",
        "'__ref_0'",
        "({ toJSON() { return '0E0'; } })",
        "({ toJSON() { return 0; } })",
        "({ rawJSON: '0E0' })",
        "Object.freeze({ __proto__: null, rawJSON: '0E0' })",
        "[0E0, 0E1]",
        "Object(0)",
        "new String('0E0')",
        "new Proxy(text, {})",
        "Object.create(text)",
        "Object.setPrototypeOf({}, text)",
    ],
)
def test_what_looks_like_a_place_stays_data(forged: str):
    texts = LargeTexts()
    js = f"{READ} const forged = {forged}; await callTool('take', [forged]); return [forged]"
    returned = texts.code_call().execute_sync({"script": js})
    assert returned["status"] in ("ok", "runtime_error")
    assert TEXT not in json.dumps([returned, texts.taken], ensure_ascii=False)
    assert not any(one in str([returned.get("result"), texts.taken]) for one in (TEXT[:50], OTHER[:50]))


def test_the_engine_has_no_way_to_write_one():
    assert result("return [typeof JSON.rawJSON, typeof JSON.isRawJSON]") == ["undefined", "undefined"]


# --- limits ---


def test_a_string_that_is_too_large_is_the_error_of_its_call():
    said = error("tool_error", "return await callTool('of_size', { n: 2001 })", {"max_reference_size": 2000})
    assert said["code"] == "SIDECAR_LIMIT"
    assert said["toolName"] == "of_size"
    assert said["toolInput"] == {"n": 2001}
    assert "2001 bytes" in said["message"]
    assert "maxReferenceSize is 2000" in said["message"]
    assert result("return (await callTool('of_size', { n: 2000 })).length", {"max_reference_size": 2000}) == 2000


def test_the_default_sizes_are_those_that_are_documented():
    mib = 1 << 20
    js = f"const t = await callTool('of_size', {{ n: {mib} }}); await callTool('take', {{ t }}); return t"
    assert len(result(js)) == mib
    assert error("tool_error", f"return await callTool('of_size', {{ n: {mib + 1} }})")["code"] == "SIDECAR_LIMIT"
    eleven = (
        f"let n = 0; for (let i = 0; i < 11; i++) n += (await callTool('of_size', {{ n: {mib} }})).length; return n"
    )
    assert "maxTotalSize is 10485760" in error("tool_error", eleven)["message"]
    assert result(eleven.replace("11", "10")) == 10 * mib
    five = f"const t = await callTool('of_size', {{ n: {mib} }}); for (let i = 0; i < 5; i++) t.toString();"
    assert result(f"{five} return 'done'") == "done"
    said = error("runtime_error", f"{five} return t.toString().length")
    assert (said["name"], "maxResolvedSize (5242880 bytes)" in said["message"]) == ("RangeError", True)
    kinds = "[typeof await callTool('of_size', { n: 1023 }), typeof await callTool('of_size', { n: 1024 })]"
    assert result(f"return {kinds}") == ["string", "object"]


MIB = 1 << 20


@pytest.mark.parametrize(("text", "on"), [("x" * 6 * MIB, {"max_reference_size": 8 * MIB}), ("\0" * MIB, {})])
def test_the_sizes_of_the_sidecar_say_how_large_an_output_may_be(text: str, on: dict[str, Any]):
    sent: list[int] = []
    tools = [Tool("read", execute=lambda _value: [text]), Tool("take", execute=lambda given: sent.append(len(given)))]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True, **on}})
    js = "const [t] = await callTool('read'); await callTool('take', t); return t"
    assert code_call.execute_sync({"script": js})["result"] == text
    assert sent == [len(text)]
    assert code_call.execute_sync({"script": "return (await callTool('read'))[0].slice(0, 3)"})["result"] == text[:3]


def test_a_string_over_the_default_size_is_told_of_by_the_option_that_allows_more():
    said = error("tool_error", f"return await callTool('of_size', {{ n: {5 * MIB} }})")
    assert (said["code"], f"maxReferenceSize is {MIB}" in said["message"]) == ("SIDECAR_LIMIT", True)


def test_a_size_of_outputs_that_was_said_holds():
    settings = {"execution_policy": {"max_tool_output_bytes": 5000}}
    said = error("tool_error", "return await callTool('of_size', { n: 6000 })", settings=settings)
    assert (said["code"], "5000 bytes" in said["message"]) == ("EXECUTION", True)


def test_sizes_count_bytes():
    on = {"extraction_threshold": 4, "max_reference_size": 4, "max_total_size": 8}
    given = {"two": "\u00e9\u00e9", "three": "abc", "four": "\U0001f600", "five": "\u00e9\u00e9a"}
    tools = [Tool(name, execute=lambda _value, *, text=text: text) for name, text in given.items()]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True, **on}})
    kind = "try { return typeof await callTool(name); } catch (e) { return e.code; }"
    js = f"return Promise.all(['two', 'three', 'four', 'five'].map(async (name) => {{ {kind} }}))"
    assert code_call.execute_sync({"script": js})["result"] == ["object", "string", "object", "SIDECAR_LIMIT"]


def test_all_of_an_invocation_counts_whatever_became_of_it():
    on = {"max_total_size": 5000}
    js = """const kinds = [];
    for (let i = 0; i < 4; i++) {
      const { success, error } = await callTool('of_size', { n: 2000 }, { throwOnError: false });
      kinds.push(success ? 'ok' : error.code); }
    return kinds"""
    assert result(js, on) == ["ok", "ok", "SIDECAR_LIMIT", "SIDECAR_LIMIT"]


@pytest.mark.parametrize("times", [6, 10_000])
def test_what_is_put_into_one_value_is_bounded(times: int):
    on = {"max_total_size": 5 * len(TEXT.encode())}
    js = f"{READ} const many = Array({times}).fill(text);"
    said = error("tool_error", f"{js} return await callTool('take', many)", on)
    assert said["code"] == "SIDECAR_LIMIT"
    assert said["toolInput"].keys() == {"bytes"}
    assert "maxTotalSize" in error("runtime_error", f"{js} return many", on)["message"]
    assert result(f"{READ} return [text, text, text, text, text]", on) == [TEXT] * 5


RESOLVING = [
    "text.toString()",
    "text.valueOf()",
    "text.slice(0)",
    "text.concat('')",
    "JSON.stringify(text)",
    "JSON.stringify([text])",
    "text.trimStart()",
]


@pytest.mark.parametrize("resolve", RESOLVING)
def test_the_whole_text_as_an_ordinary_string_counts(resolve: str):
    size = len(TEXT.encode())
    js = f"{READ} for (let i = 0; i < 3; i++) {resolve}; return 'done'"
    assert result(js, {"max_resolved_size": 3 * size + 10}) == "done"
    assert "maxResolvedSize" in error("runtime_error", js, {"max_resolved_size": 3 * size - 1})["message"]


@pytest.mark.parametrize("join", ["text + ''", "`${text}`", "[text].join()", "'a' + text", "text < 'a'"])
def test_joins_count_too(join: str):
    js = f"{READ} for (let i = 0; i < 3; i++) {join}; return 'done'"
    on = {"allow_composites": True, "max_resolved_size": 3 * len(TEXT.encode())}
    assert result(js, on) == "done"
    on = {**on, "max_resolved_size": on["max_resolved_size"] - 1}
    assert "maxResolvedSize" in error("runtime_error", js, on)["message"]


def test_parts_and_passing_on_do_not_count():
    js = f"""{READ} let n = 0;
    for (let i = 0; i < 200; i++) n += text.slice(i, i + 100).length;
    n += text.split('\\n').length + JSON.parse(given.numbers).numbers.length + [...text].length;
    for (let i = 0; i < 5; i++) await callTool('take', {{ text }});
    return n > 0 && text"""
    assert result(js, {"max_resolved_size": 100}) == TEXT


def test_very_many_references_are_refused_by_their_number():
    on = {
        "sidecar": {"enabled": True, "extraction_threshold": 1},
        "settings": {"execution_policy": {"max_values": 200_000}},
    }
    code_call = create_code_call_tools({"many": lambda n: ["x"] * n}, on)

    def many(n: int) -> Any:
        return code_call.execute_sync({"script": f"const t = await callTool('many', {{ n: {n} }}); return t.length"})

    assert many(20_000) == {"status": "ok", "result": 20_000}
    said = many(40_000)
    assert (said["status"], said["error"]["code"]) == ("tool_error", "SIDECAR_LIMIT")


@pytest.mark.parametrize("mib", [2, 6])
def test_texts_that_do_not_fit_into_the_engine_end_the_script(mib: int):
    texts = [Tool("many", execute=lambda _value: [one * 1_000_000 for one in "abcdefghi"])]
    policy = {"memory_limit_bytes": mib << 20, "max_tool_output_bytes": 32 << 20}
    code_call = create_code_call_tools(texts, {"sidecar": {"enabled": True}, "settings": {"execution_policy": policy}})
    js = "const many = await callTool('many'); return many.map((text) => text.length)"
    said = code_call.execute_sync({"script": js})
    assert (said["status"], said["error"]["name"]) == ("runtime_error", "InternalError")
    assert "out of memory" in said["error"]["message"]


# --- what is only to be looked at ---


def test_the_console_shows_the_beginning_of_a_text():
    answered = answer(
        f"{READ} console.log('a', text, {{ text, n: 1 }}); console.error({{ a: [given.other] }}); return 1"
    )
    first, second = (line["message"] for line in answered["logs"])
    assert first.startswith('a 0E0 "a\\b"')
    assert second.startswith('{"a":["other other')
    assert all(len(one) <= 8001 for one in (first, second))
    assert '"n":1' in answer(f"{READ} console.log({{ text, n: 1 }}); return 1")["logs"][0]["message"]


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("given.numbers", '{"numbers": [0, 1,'),
        ("Object.assign(new Error(''), { message: given.other })", "other other"),
        ("Object.assign(new Error('plain'), { details: { text } })", "plain"),
    ],
)
def test_thrown_texts_are_told_of_by_their_beginning(thrown: str, message: str):
    said = error("runtime_error", f"{READ} throw {thrown}")
    assert said["message"].startswith(message)
    assert len(said["message"]) < 5000


def test_what_a_script_tells_listeners_holds_no_place():
    told: list[Any] = []
    on = {"notify": told.append}
    js = f"""{READ} mcpNotify('a', {{ part: text.slice(0, 5), all: given.short }}); mcpLog('info', text, [1]);
    try {{ mcpNotify('b', [given.other, given.other, given.other]); }} catch (e) {{ return e.message; }}"""
    assert "longer than" in result(js, **on)
    said = [one for one in told if one["type"] in ("notify", "log")]
    assert said[0]["payload"] == {"part": TEXT[:5], "all": GIVEN["short"]}
    assert said[1]["message"].startswith(TEXT[:100])


def test_events_hooks_and_notifications_see_the_text():
    seen: list[Any] = []
    told: list[Any] = []

    def before(call: Any) -> None:
        seen.append(call.input)

    events: list[Any] = []
    listens = {"on_nested_tool_call": lambda event: events.append((event.input, event.input_bytes))}
    settings = {"pipeline": {"before": before}, "lifecycle": listens}
    js = f"{READ} await callTool('docs.store', {{ text }}); return await callTool('take', text)"
    assert result(js, settings=settings, notify=told.append) == {"taken": 2}
    assert seen[1:] == [{"text": TEXT}, TEXT]
    assert [one for one, _ in events][1:] == [{"text": TEXT}, TEXT]
    assert [one["input"] for one in told if one["type"] == "tool_call_start"][1:] == [{"text": TEXT}, TEXT]
    events.clear()
    assert result(js, settings={"lifecycle": listens}) == {"taken": 2}
    assert [one for one, _ in events][1:] == [{"text": TEXT}, TEXT]
    assert all(size >= len(TEXT.encode()) for _, size in events[1:])


def test_a_hook_may_replace_what_became_large():
    def after(call: Any, output: Any) -> Any:
        return {"text": OTHER} if call.tool_name == "read" else None

    js = f"{READ} await callTool('docs.store', {{ text }}); return [typeof text, text]"
    assert result(js, settings={"pipeline": {"after": after}}) == ["object", OTHER]


def test_a_hook_may_put_something_beside_a_text_that_is_as_large_as_one_may_be():
    def before(call: Any) -> Any:
        return {**call.input, "by": "host"} if call.tool_name == "docs.store" else None

    texts, mib = LargeTexts(), 1 << 20
    code_call = texts.code_call(settings={"pipeline": {"before": before}})
    js = f"const text = await callTool('of_size', {{ n: {mib} }}); return await callTool('docs.store', {{ text }})"
    assert code_call.execute_sync({"script": js}) == {"status": "ok", "result": {"taken": 1}}
    assert texts.taken == [{"text": "x" * mib, "by": "host"}]


# --- who has none of it ---


def test_code_mode_has_strings():
    tool = create_code_mode_tool(LargeTexts().tools())
    js = "const { text } = await tools.read({}); return [typeof text, (text + '!').length - text.length]"
    assert tool.execute_sync({"js": js}) == ["string", 1]
    assert result(f"{READ} return [typeof text, text + '']", {"enabled": False}) == ["string", TEXT]


def test_the_description_says_what_a_reference_is():
    (execute,) = [one for one in LargeTexts().code_call().tools if one.name.endswith("execute")]
    assert "1024 bytes or more is a reference" in execute.description
    assert "toString()" in execute.description
    assert "identity" in execute.description
    (joining,) = [
        one for one in LargeTexts().code_call({"allow_composites": True}).tools if one.name.endswith("execute")
    ]
    assert "toString()" not in joining.description
    (off,) = [one for one in LargeTexts().code_call({"enabled": False}).tools if one.name.endswith("execute")]
    assert "reference" not in off.description
    for code_call in (LargeTexts().code_call(), LargeTexts().code_call({"allow_composites": True})):
        texts = [
            {"name": one.name, "description": one.description, "inputSchema": one.input_schema}
            for one in code_call.tools
        ]
        assert len(json.dumps(texts, separators=(",", ":"))) <= 4000


def test_a_direct_call_comes_to_what_its_script_comes_to():
    code_call = LargeTexts().code_call(direct_calls={"enabled": True})
    assert code_call.invoke_sync({"tool": "read", "input": {}}) == {"status": "ok", "result": GIVEN}
    assert code_call.invoke_sync({"tool": "whole"}) == {"status": "ok", "result": TEXT}
    mib = 1 << 20
    assert len(code_call.invoke_sync({"tool": "of_size", "input": {"n": mib}})["result"]) == mib
    said = code_call.invoke_sync({"tool": "of_size", "input": {"n": mib + 1}})
    assert (said["status"], said["error"]["code"]) == ("tool_error", "SIDECAR_LIMIT")
