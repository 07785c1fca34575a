"""Large strings of tools as references in a script: what they are there."""

from __future__ import annotations

from typing import Any

from large_texts import READ, TEXT, result
from suite import each_row, rounds

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


@each_row("say", SAME[:: rounds(4, 1)])
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


@each_row("convert", CONVERSIONS[:: rounds(2, 1)])
def test_no_conversion_makes_a_string_of_it_unasked(convert: str):
    said = result(
        f"{READ} const t = text; try {{ {convert}; return 'done'; }} catch (e) {{ return [e.name, e.message]; }}"
    )
    assert said[0] == "TypeError", said
    assert "toString()" in said[1]


@each_row("convert", [one for one in CONVERSIONS if "RegExp" not in one and "Primitive" not in one][:: rounds(2, 1)])
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


@each_row(
    "js, said",
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


@each_row("trick", TRICKS)
def test_nothing_of_it_can_be_changed_or_used_for_another(trick: str):
    js = f"{READ} try {{ {trick}; }} catch (e) {{ return [e.name, text.length, text.slice(0, 3), 'abc'.slice(1)]; }}"
    said = result(js)
    assert said == ["TypeError", len(TEXT.encode("utf-16-le")) // 2, "0E0", "bc"]
