"""Fields that a result never has are told of before anything runs; what a program asks for first is not."""

from __future__ import annotations

import json
import random
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.guest.analysis import analyse
from codemode.source.checks import find_result_field_problems

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
STRIP_CORPUS = Path(__file__).parents[2] / "differential" / "strip_corpus"
_analyser = analyse.load_analyser(SITE_PATHS)
ITEM = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "name": {"type": "string"}, "kind": {"$ref": "#/$defs/K"}},
    "additionalProperties": False,
    "$defs": {"K": {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": False}},
}
OPEN = {**ITEM, "additionalProperties": True}
TOOLS: dict[str, Any] = {
    "item": ITEM,
    "open": {"type": "object", "properties": {"price": {}}},
    "open2": OPEN,
    "patterned": {**ITEM, "patternProperties": {"^x": {}}},
    "any": None,
    "text": {"type": "string"},
    "list": {"type": "array", "items": ITEM},
    "maybe": {
        "anyOf": [{"$ref": "#/$defs/I"}, {"type": "null"}],
        "$defs": {"I": {k: v for k, v in ITEM.items() if k != "$defs"}},
    },
    "either": {"oneOf": [ITEM, {"type": "object", "properties": {"error": {}}, "additionalProperties": False}]},
    "mixed": {"anyOf": [ITEM, {"type": "string"}]},
    "all": {**ITEM, "allOf": [{}]},
    "nothing": {"type": "null"},
    "loop": {"$ref": "#"},
}


def messages(source: str, tools: dict[str, Any] = TOOLS) -> list[str]:
    facts = _analyser(source, 60_000)["facts"]
    assert facts is not None, source
    return [problem["message"] for problem in find_result_field_problems(facts, list(tools), tools.get)]


@each_row(
    "source",
    [
        "return (await tools.item({ id: 1 })).prise",
        "return ((await (tools.item({ id: 1 }))) as any)!.prise + 1",
        "const { prise } = await tools.item({ id: 1 }); return prise",
        "let { name, prise: p } = (await tools.item({})); return p",
        "const { prise: { a } } = await tools.item({})",
        "const it = await tools.item({}); return it.prise",
        "const it: I = await tools.item({}); console.log(it, JSON.stringify(it)); return [1].map(() => it.prise > 5)",
        "const it = await tools.item({}); const { prise } = it; return it",
        "const it = await tools.item({}); return `${it.name}: ${it.prise}`",
        "const it = await tools.item({}); return other.it.x + it.prise.toFixed(2)",
        "async function main() { const it = await tools.item({}); return it.prise } return main()",
        "for (const one of (await tools.item({})).prise) {}",
        "if ((await tools.item({})).prise > 3) return 1",
        "return (await tools.maybe({})).prise",
        "return (await tools.either({})).prise",
    ],
)
def test_a_field_that_no_result_has_is_told_of_with_the_nearest(source: str) -> None:
    (message,) = messages(source)
    assert message.endswith("result.prise does not exist; did you mean price?")


def test_it_is_told_of_where_it_stands() -> None:
    facts = _analyser("const it = await tools.item({});\n  return it.prise", 60_000)["facts"]
    (problem,) = find_result_field_problems(facts, list(TOOLS), TOOLS.get)
    assert (problem["line"], problem["column"]) == (2, 13)
    (message,) = messages("(await tools.item({})).zzz")
    assert message == "tools.item: result.zzz does not exist (there is price, name, kind)"


GUARDS = (
    "const { E } = R; if (E) throw new Error(E)",
    "const { E: e, F } = R; if (!e) return F",
    "const { F, E, OTHER } = R; return E ? OTHER : F",
    "const { E } = R; return E?.message",
    "const { E } = R; return E ?? 1",
    "let { E } = R; E = E ?? 1; return E",
    "const { E } = R; switch (E) { case 1: return 1 }",
    "const { E, OTHER } = R; for (; E; ) return OTHER.x",
    "const { E, OTHER } = R; if (Array.isArray(E)) return OTHER.length",
    "const e = (R).E; if (e) return 1",
    "const r = R; const e = r.E; if (e) return e.message",
    "const r = R; const { E } = r; return E || r.F",
    "const r = R; if (r.hasOwnProperty('E')) return r.E.x",
    "const r = R; if (Object.hasOwn(r, 'E')) return r.E.x",
    "const r = R; if ('E' in r) return r.E.x",
    "const r = R; if (r.E) return r.OTHER.x",
    "const r = R; if (Array.isArray(r.E)) return r.E.length",
    "const r = R; if (Boolean(r.E)) return r.E.length",
    "const r = R; switch (r.E) { case 'x': return r.OTHER }",
    "const r = R; switch (1) { case r.E: return r.F }",
    "const r = R; return r.E === 'x' ? r.OTHER : r.F",
    "const r = R; while (r.E) return 1",
    "const r = R; return typeof r.E",
    "const r = R; return r?.E",
    "const r = R; return { ...r }.E",
    "const r = R; return [r.E, r.F].filter(Boolean)",
    "const r = R; return isThere(r.E); function isThere(x) { return x !== undefined }",
    "try { return (R).E.x } catch { return 1 }",
    "try { const { E } = R; return E.x } catch (error) { return (R).F }",
    "try { const r = R; return r.E.x } catch (error) { return error.message } finally { 1 }",
    "let e; do { const r = R; e = r.E } while (e)",
    "let e; for (;;) { const { E } = R; e = E; if (!e) break }",
    "let e = true; while (e) { e = (R).E }",
    "const r = R; let e; if ((e = r.E)) return e.x",
    "const r = R; const e = r.E; const same = e; if (same) return 1",
    "const r = R; let e = r.F; e ||= r.E; return e",
    "const r = R; if (['x'].includes(r.E)) throw new Error(r.OTHER); return r.F",
    "const r = R; if (/x/.test(r.E)) throw new Error(r.OTHER); return r.F",
    "const r = R; return Object.is(r.E, undefined) ? r.F : r.E",
    "const r = R; if (r.E > 0) throw new Error(r.OTHER); return r.F",
    "const r = R; if (!r.F) throw new Error(r.E); return r.F",
    "const r = R; if (!r.F) throw r.E; return r.F",
    "const r = R; return Number(r.E) || r.F",
    "const r = R; const e = Number(r.E); return isNaN(e) ? r.F : e",
    "const r = R; const both = [r.E, r.F]; return both.filter(Boolean)",
    "const r = R; const out = []; out.push(r.E); return out.filter(Boolean)",
    "const r = R; const isThere = () => r.E; return isThere() ? 1 : 2",
    "const r = R; return { ...r.E, a: r.F }",
    "const r = R; if (JSON.stringify(r).includes('E')) return r.E.x",
    "async function main() { const r = R; return r.E.x } try { return await main() } catch { return 1 }",
    "const main = async () => { const r = R; return r.E.x }; return await main().catch(() => 1)",
    "const main = async () => { const r = R; return r.E.x }; return Promise.allSettled([main()])",
)


def guarded(pattern: str, absent: str, other: str, field: str, result: str) -> str:
    words = {"E": absent, "OTHER": other, "F": field, "R": result}
    return re.sub(r"\b(E|OTHER|F|R)\b", lambda found: words[found[0]], pattern)


@each_row("pattern", GUARDS)
def test_a_program_that_asks_for_a_field_first_runs(pattern: str) -> None:
    source = guarded(pattern, "error", "details", "name", "await tools.item({})")
    assert messages(source) == []


@each_row(
    "source",
    [
        "try { return (await tools.item({})).prise } catch { return 1 }",
        "const { error, prise } = await tools.item({}); if (error) throw error; return prise",
        "const r = await tools.item({}); if (r.error) throw r.error; return r.prise",
        "const r = await tools.item({}); return show(r.prise)",
        "const r = await tools.item({}); if (r.name) return r.prise.x",
        "let p; do { p = (await tools.item({})).prise } while (p)",
        "async function main() { return (await tools.item({})).prise } try { await main() } catch { }",
        "const out = []; out.push((await tools.item({})).prise)",
        "if ((await tools.item({})).prise > 1) return 1",
    ],
)
def test_a_slip_is_told_of_even_where_a_program_asks_for_something_else(source: str) -> None:
    (message,) = messages(source)
    assert message.endswith("result.prise does not exist; did you mean price?")


def test_what_a_program_asks_for_and_there_is_excuses_nothing() -> None:
    assert messages("const r = await tools.item({}); if (r.name) return r.details") != []
    assert messages("const r = await tools.item({}); return { a: r.details, b: JSON.stringify(r) }") != []
    assert messages("const r = await tools.item({}); for (const one of r.details) { }") != []
    assert messages("const r = await tools.item({}); await tools.open(r.details)") != []
    assert messages("try { const r = await tools.item({}) } finally { } return (await tools.item({})).details") != []


@pytest.mark.parametrize("seed", range(3))
def test_no_generated_program_that_asks_first_is_refused(seed: int) -> None:
    """A hundred programs each, of up to four results: what is asked for may be there, or be like nothing there is."""
    chosen = random.Random(seed)
    for _ in range(100):
        tools: dict[str, Any] = {}
        lines: list[str] = []
        for number in range(chosen.randint(1, 4)):
            fields = chosen.sample(["id", "name", "total", "created_at", "größe", "$x", "kind"], 3)
            absent, other = chosen.sample(["error", "warnings", "rows", "nextCursor", "ok", "übrig"], 2)
            if chosen.random() < 0.3:
                absent = fields[2]
            properties: dict[str, Any] = {field: {} for field in fields}
            tools[f"t{number}"] = {"type": "object", "properties": properties, "additionalProperties": False}
            body = guarded(chosen.choice(GUARDS), absent, other, fields[0], f"await tools.t{number}({{}})")
            if absent == fields[2]:
                body = body.replace(other, fields[1])
            lines.append(f"await (async () => {{ {body} }})()")
        source = ";\n".join(lines)
        assert messages(source, tools) == [], source


@each_row(
    "source",
    [
        "(await tools.item({})).price",
        "(await tools.item({})).kind.id",
        "(await tools.item({}))?.prise",
        "(await tools.item({})).prise ?? 1",
        "(await tools.item({})).prise || 1",
        "if ((await tools.item({})).prise) {}",
        "if (!(await tools.item({})).prise) {}",
        "(await tools.item({})).prise ? 1 : 2",
        "(await tools.item({})).prise === undefined",
        "typeof (await tools.item({})).prise",
        "(await tools.item({})).prise?.x",
        "(await tools.item({})).prise = 1",
        "(await tools.item({})).toString()",
        "(await tools.item({})).hasOwnProperty('x')",
        "(await tools.item({})).pr\\u0069se",
        "(await tools.item({}))['prise']",
        "const { prise = 1 } = await tools.item({})",
        "const { prise: p = 1 } = await tools.item({})",
        "const { ...rest } = await tools.item({})",
        "const { ['prise']: p } = await tools.item({})",
        "let it = await tools.item({}); it.prise",
        "var it = await tools.item({}); it.prise",
        "const it = await tools.item({}); it.prise = 1; return it.prise",
        "const it = await tools.item({}); [it.prise] = [1]; return it.prise",
        "const it = await tools.item({}); ({ a: it.prise } = { a: 1 }); return it.prise",
        "const it = await tools.item({}); for (it.prise of [1]); return it.prise",
        "const it = await tools.item({}); it.prise++; return it.prise",
        "const it = await tools.item({}); delete it.prise; return it.prise",
        "const it = await tools.item({}); Object.assign(it, { prise: 1 }); return it.prise",
        "const it = await tools.item({}); it['prise'] = 1; return it.prise",
        "const it = await tools.item({}); const same = it; same.prise = 1; return it.prise",
        "const it = await tools.item({}); return [1].map((it) => it.prise)",
        "const it = await tools.item({}); { const it = { prise: 1 }; it.prise }",
        "const it = await tools.item({}); if (it.error) throw new Error(it.error.message)",
        "const it = await tools.item({}); if ('prise' in it) return it.prise",
        "const it = await tools.item({}); const say = { it }; say.it.prise = 1; return it.prise",
        'const it = await tools.item({}); return "\\u0069" + it.prise',
        "const it = tools.item({}); it.prise",
        "(tools.item({})).prise",
        "const tools = x; (await tools.item({})).prise",
        *[f"(await tools.{name}({{}})).prise" for name in TOOLS if name not in ("item", "maybe", "either")],
        "(await tools.either({})).error.x",
    ],
)
def test_what_is_not_certain_is_left_to_run_time(source: str) -> None:
    assert messages(source) == []


READS = (
    "const v@ = await tools.t@({}); out.push(v@.F)",
    "out.push((await tools.t@({})).F)",
    "const { F: f@ } = await tools.t@({}); out.push(f@)",
    "const v@ = await tools.t@({}); out.push(...[v@.F].map((x) => x), v@.G)",
    "const v@ = await tools.t@({}); if (v@.never) throw new Error(v@.never); out.push({ v@, ...v@ })",
    "const v@ = await tools.t@({}); v@.added = v@.F; out.push(v@.added)",
    "let v@ = await tools.t@({}); v@ = { other: v@.F }; out.push(v@.other)",
    "for (const x of [1, 2]) { const { F, G } = await tools.t@({ x }); out.push(F, G) }",
    "try { out.push((await tools.t@({})).F) } catch (error) { out.push(error.message) }",
)


def with_fields(line: str, one: str, other: str) -> str:
    line = line.replace("{ F:", f"{{ {one}:").replace("{ F, G }", f"{{ {one}: F, {other}: G }}")
    return line.replace(".F", f".{one}").replace(".G", f".{other}")


@pytest.mark.parametrize("seed", range(3))
def test_no_program_that_reads_what_there_is_is_refused(seed: int) -> None:
    """A hundred programs each, over outputs of random names: all right, and then one of them with one letter wrong."""
    chosen = random.Random(seed)
    for _ in range(100):
        tools: dict[str, Any] = {}
        lines: list[str] = []
        for number in range(chosen.randint(1, 4)):
            fields = chosen.sample(["id", "it", "v0", "tools", "name", "total", "created_at", "größe", "$x", "F"], 4)
            properties: dict[str, Any] = {field: {} for field in fields}
            tools[f"t{number}"] = {"type": "object", "properties": properties, "additionalProperties": False}
            lines.append("{" + with_fields(chosen.choice(READS).replace("@", str(number)), *fields[:2]) + "}")
        source = "const out = [];\n" + "\n".join(lines) + "\nreturn out"
        assert messages(source, tools) == [], source
        wrong = source + "\nreturn (await tools.t0({})).nowhere"
        assert len(messages(wrong, tools)) == 1, wrong


def test_what_other_programs_read_of_results_is_what_they_say() -> None:
    corpus = "".join(
        (STRIP_CORPUS / f"{theme}.ts").read_text(encoding="utf-8")
        for theme in ("annotations", "classes", "declarations", "expressions", "programs")
    )
    programs = [chunk.partition("\n")[2] for chunk in ("\n" + corpus).split("\n//# ")[1:]]
    assert len(programs) > 300
    facts = [_analyser(source, 60_000).get("facts") or {} for source in programs]
    assert [(read["tool"], read["name"]) for found in facts for read in found.get("reads", ())] == [
        ("list-items", "items"),
        ("list-items", "next"),
        ("readFile", "split"),
        ("search", "data"),
    ]


KEYS = ["reads", "tool", "name", "line", "column", "type", "properties", "anyOf", "$ref", "additionalProperties"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inside, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_no_facts_and_no_schemas_break_it(value: Any) -> None:
    read = {"tool": "item", "name": "prise", "line": 1, "column": 1}
    reads = [value, [value], [read | {"tool": value}], [read | {"name": value}], [read | {"line": value}]]
    for facts in (value, *({"reads": one} for one in reads)):
        json.dumps(find_result_field_problems(facts, list(TOOLS), TOOLS.get))
    json.dumps(find_result_field_problems({"reads": [read] * 600}, ["item"], lambda _name: value))
