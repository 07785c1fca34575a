"""Programs made of the forms of import and export, with line breaks and comments where they may mean something."""

from random import Random

MODULES = {
    "m": {"a": 1, "b": "two", "default": 3, "x y": [4], "type": 5, "as": 6, "from": 7},
    "n": {"a": "other", "if": 8},
    "é/😀": {"größe": 9},
}
BLANKS = (
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\u2028",
    "/* a */",
    "/*\n*/",
    "// import x from 'y'\n",
    "\ufeff",
)
ENDS = (";", ";", "\n", "\n", ";\n", "\r\n", "\r", "\u2028", "; // é😀\n", " /* ; */\n")
LOCALS = (
    "a",
    "b",
    "c",
    "d",
    "from",
    "as",
    "of",
    "async",
    "type",
    "get",
    "größe",
    "$codemode",
    "impo$_",
    "load",
    "\\u0065f",
)
EXPORTED = ("a", "b", "default", '"x y"', "'a'", "type", "as", "from", "\\u0061", '"\\x61"', "nope", "if")
# What uses names of `LOCALS`, and what does not; `@` stands for a name.
STATEMENTS = (
    "log(typeof @)",
    "log(@)",
    "log(`${@}`)",
    "log({ @ }.@)",
    "log([@][0])",
    "(log(@))",
    "[log(@)]",
    "`${log(@)}`",
    "+log(@)",
    "/1/.test(log(@))",
    "-log(1) / 2",
    "{ let @ = 1; log(@) }",
    "@: for (;;) { break @ }",
    "log(this)",
    "function f1() { return @ } log(f1())",
    "log(await @)",
    "try { @ = 1 } catch (e) { log(e.name) }",
    "log(typeof import.meta)",
    "log(Object.keys(@))",
    "log(@.a)",
    "log(@.nope)",
    "try { @.a = 1 } catch (e) { log(e.name) }",
    "let z1 = 1, z2 = @",
    "log((await import('m')).a)",
    "log(await import(`n`).then((x) => x.a))",
    'await import("\\x6d", { with: {} })',
    "await import('no' + 'pe').catch(() => log('none'))",
    "class K { static { import('m') } import() { return @ } }",
    "log(({ import: 1 }).import)",
    "log('import(\"m\")', /import/.source)",
    "var v = @\n++v\nlog(v)",
    "if (typeof @ === 'x') log(1)",
    "log(@ / 2 / 3)",
    "let { a: w = @ } = {}; log(w)",
    "for (const q of [@]) log(q)",
    "let t = @\n/1/g",
    "log(0); ({}).x",
)
EXPORTS = (
    "export const e1 = 1",
    "export let e2",
    "export var { e3 } = {}",
    "export function e4() {}",
    "export class e5 {}",
    "export default @",
    "export default 1",
    "export default function () {}",
    "export default class {}",
    "export default () => {}",
    "export { @ }",
    "export { @ as e6 }",
    "export { @ as default }",
    "export { @ as 'e 7' }",
    "export {}",
    "export async function e8() {}",
    "export * from 'm'",
    "export * as e9 from 'm'",
    "export * as 'e 0' from 'n'",
    "export { a as e10 } from 'm'",
    "export { default } from 'm'",
    "export { default as e11, 'x y' as e12 } from 'm'",
    "export { nope } from 'm'",
    "export { if } from 'n'",
    "export * from 'nope'",
    "export {} from 'm'",
    "export * as default from 'n' with {}",
)
MISTAKES = (
    "const = 1",
    "let a1; let a1",
    "return 1",
    "with (1) {}",
    "export { zz }",
    "x = 010",
    "a b",
    "await: 1",
    "{ import 'm' }",
    "if (1) { export {} }",
    "import a, from 'm'",
    "import * from 'm'",
    "import {a as} from 'm'",
    "import {a b} from 'm'",
    "export { a as b, } from",
    "import 'm' 'n'",
    "let let = 1",
    "<!-- a",
    "--> a",
    "f(",
    "'a",
    "`a",
    "/a",
    "import()",
    "import(...a)",
    "export default 1; export default 2",
    "export const e1 = 1, e1 = 2",
    "import { a, a } from 'm'",
    "import a from 'm' b",
    "yield: 1",
    "import { if } from 'm'",
    "import { a as 'b' } from 'm'",
    "import { 'a' } from 'm'",
    "delete a",
    "arguments = 1",
    "break",
    "import.meta = 1",
    "import { await } from 'n'",
    "import let from 'm'",
    "import { a as eval } from 'm'",
    "import { '\\ud800' as a } from 'm'",
    "import = 1",
)
# Where Node and the engine mean the same place, or the end of the same word.
SAME_PLACE = (
    "const = 1",
    "return 1",
    "with (1) {}",
    "export { zz }",
    "a b",
    "import a, from 'm'",
    "let let = 1",
    "import { if } from 'm'",
    "import { await } from 'n'",
)


def statement(random: Random, pieces: tuple[str, ...]) -> str:
    return random.choice(pieces).replace("@", random.choice(LOCALS))


def import_statement(random: Random) -> str:
    """A statement whose tokens any blanks may stand between."""
    clause: list[str] = []
    if random.random() < 0.4:
        clause.append(random.choice(LOCALS))
    kind = random.random()
    if kind < 0.25:
        clause.append(_joined(random, ("*", "as", random.choice(LOCALS))))
    elif kind < 0.8:
        clause.append(_braced(random))
    source = random.choice(("'m'", '"m"', "'m'", "'n'", '"é/😀"', "'\\x6d'", "'nope'"))
    tokens = ["import", *_listed(clause), *(["from"] if clause else []), source]
    text = _joined(random, tokens)
    # The engine reads no byte order mark around this word.
    attributes = ("with{}", " with { }", "\nwith\n{\n}", "/**/with/**/{}")
    return text + random.choice(attributes) if random.random() < 0.15 else text


def _listed(items: list[str]) -> list[str]:
    return [token for item in items for token in (",", item)][1:]


def _braced(random: Random) -> str:
    specifiers: list[str] = []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        exported = random.choice(EXPORTED)
        if exported in LOCALS and random.random() < 0.5:
            specifiers.append(exported)
        else:
            specifiers.append(_joined(random, (exported, "as", random.choice(LOCALS))))
    tail = [","] if specifiers and random.random() < 0.2 else []
    return _joined(random, ["{", *_listed(specifiers), *tail, "}"])


def _joined(random: Random, tokens: list[str] | tuple[str, ...]) -> str:
    """The tokens with blanks between them, where two would else be one and elsewhere now and then."""
    text = tokens[0]
    for token in tokens[1:]:
        is_needed = (text[-1].isalnum() or text[-1] in "_$") and (token[0].isalnum() or token[0] in "_$\\")
        text += (random.choice(BLANKS) if is_needed or random.random() < 0.3 else "") + token
    return text


def program(random: Random, *, may_fail: bool) -> str:
    """A program of such statements; with ``may_fail`` now and then one that is none."""
    parts = [import_statement(random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    parts += [statement(random, STATEMENTS) for _ in range(random.choice((1, 2, 3, 4)))]
    parts += [statement(random, EXPORTS) for _ in range(random.choice((0, 0, 1, 2)))]
    if may_fail:
        parts.append(statement(random, MISTAKES))
    random.shuffle(parts)
    head = random.choice(("", "", "", "#!/usr/bin/env x\n", "\ufeff", "'use strict'\n", "\n", "/* é😀 */"))
    return head + "".join(_terminate(part, random.choice(ENDS)) for part in parts)


def _terminate(part: str, end: str) -> str:
    # The engine does not take U+2028 between `async` and `function` for the end of a line.
    return part + ("\n" if part.endswith("async") and end == "\u2028" else end)
