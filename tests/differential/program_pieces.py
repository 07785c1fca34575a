"""Pieces of programs: ways to write a name where it is one and where it is none, and what may stand around them."""

from random import Random

BANNED = ("eval", "Function", "fetch", "process", "globalThis")

# `@` stands for a name.
HIDDEN_NAMES = (
    "@(1);",
    "x = @;",
    "({ @ });",
    "({ @ } = x);",
    "({ @ = 1 } = x);",
    "({ a: @ } = x);",
    "({ a: [@ = 1], ...b } = x);",
    "[a, ...b] = [@];",
    "x = { [@]: 1, [`${@}`]() {} };",
    "x = (a = @) => a;",
    "x = ({ a = @ }) => a;",
    "x = async function f([a = @]) {};",
    "x = class { a = @; [@] = 1; static { f(@); } };",
    "x = class extends (@) {};",
    "x = `a${`b${@}`}c`;",
    "x = @`a`;",
    "x = a?.[@];",
    "x = a ? @ : b;",
    "x = typeof @;",
    "x = @.name;",
    "x = @\n.name;",
    "x = (0, @);",
    "x = @ /* a */ (1);",
    "x = /* a */ @;",
    "// a\r@(1);",
    "x = 1.\n@(1);",
    "x = a / @ / b;",
    "x = /a/.test(@) / 2;",
    "x = @ as unknown as number;",
    "x = (@ satisfies unknown)!;",
    "x = f<string>(@);",
    "x = <T,>(a: T = @): T => a;",
    "throw @;",
    "a: { break a; @; }",
    "switch (x) { case @: }",
    "try { f(); } catch { @(1); } finally { @; }",
    "const o = { m() { return @; }, get g() { return @; } };",
)
HIDDEN_LOOPS = (
    "for (;;) break;",
    "for (let i = 0; i < 1; i++) {}",
    "for (const a in b) {}",
    "for (a of b) ;",
    "for (a of /[/'\"]/g.exec(b)) ;",
    "for (const [a, { b: c }] of d) {}",
    "for await (const a of b) {}",
    "while (x) break;",
    "do {} while (x)\nf();",
    "if (x) while (y) {}",
    "a: for (;;) { continue a; }",
    "for /* a */ (const a of b as number[]) {}",
    "for\n(;;) break",
)
HARMLESS = (
    "x = a.@;",
    "x = a?.@;",
    "x = a.@.b.@();",
    "x = { @: 1 };",
    "x = { '@': 1, \"@\"() {} };",
    "x = { @() {}, get a() { return 1; }, async b() {} };",
    "x = { set @(a) {} };",
    "x = class { @() {} static @ = 1; #@ = 2; a() { return this.#@; } };",
    "x = class { static async *@() {} };",
    "({ @: x } = y);",
    "const { @: a1 } = y;",
    "@: { break @; }",
    "x = '@' + \"@\" + `@ ${1} @`;",
    "x = '\\'@' + \"\\\"@\" + `\\`@`;",
    "x = /@/g.test(/[/]@/.source);",
    "x = 1 / 2 / 3; // @\n",
    "x = { @: 1 } / 2; x = f({ @: 2 } / 3 / 4);",
    "x = { a: '@' }\n/ 2;\n",
    "x = function () { return '@'; } / 2; x = class { @() {} } / 2;",
    "/* @ */ x = 1; /* * / @ */",
    "let a2: @ = 1;",
    "let a3: Map<@, typeof @[]> | { @: @ } = x;",
    "function f4(a: @, b?: @): asserts a is @ {}",
    "x = y as @;",
    "x = y as unknown as a.@.b;",
    "x = f<@>(1);",
    "x = y satisfies { @: @ };",
    "x = $@ + @_ + a@;",
    "x = \uff45\uff56\uff41\uff4c;",
    "x = a.for + a.while + { do: 1, import: 2 }.do;",
)
# `%` stands for statements.
NESTINGS = (
    "{ % }",
    "if (x) { % } else {}",
    "async function f() { % }",
    "x = async () => { % };",
    "x = async (a = async () => { % }) => a;",
    "x = async function* g() { % };",
    "x = { async m() { % } };",
    "class A { async m() { % } }",
    "class B extends C { static async #p(a: number): Promise<void> { % } }",
    "x = `${async () => { % }}`;",
    "f(`a${g(async () => { % })}b`, /[`}]/);",
    "try { % } catch ({ a = 1 }) { f(); }",
    "switch (x) { case 1: { % } default: }",
    "x = a ? async () => { % } : null;",
    "/* ' */ % // `\n",
    "x = <T,>(a: T) => async () => { % };",
    "x = (async () => { % }) as () => Promise<void>;",
    "x = new (class { a = async () => { % }; })();",
)
TYPESCRIPT = (
    "interface I { eval: number; for(a: string): void }",
    "type T<A extends string = 'eval'> = { [K in A]: K } | typeof x;",
    "declare const unused: unique symbol;",
    "const n: Array<number> = [1, 2] as const;",
    "function over(a: string): void;",
    "abstract class S<T> { abstract a(): void; private b?: T; declare c: eval }",
    "const c2 = (a?: number) => a! / 2;",
    "const s = '// /* ` eval';",
    "const r = /[/'\"`]/;",
    "",
)

# In what follows `@` stands for an expression and `$` for statements.
ATOMS = (
    *("a", "b", "eval", "x", "1", "2.", "3.5", ".5e1", "0x1f", '"s"', "'t'", "`u`", "`v${@}w`", "/r/", '/"/'),
    *("/'/g", "/[/]/", "/`/", "/\\/*/", "/}/", '/a+"/', "this", "null", "[@]", "[@,@]", "({})", "({a})", "({a:@})"),
    *("({eval})", "({b(){$}})", "({get eval(){$}})", "({[@]:@})", "function(){$}", "async function(){$}"),
    *("function*(){$}", "()=>@", "()=>{$}", "async x=>@", "x=>{$}", "(a,b=@)=>{$}", "class{}", "class{eval(){$}}"),
    *("class{eval=@}", "class{[@](){$}}", "class{static{$}}", "class{#eval=@;m(){$}}", "new a(@)", "new.target"),
    *("import('q')", "await", "async", "of", "get", "set", "static", "let", "yield", "type", "as", "declare"),
    *("abstract", "namespace", "module", "undefined", "π", "arguments", "\\u0065val", "\\u{65}val"),
)
EXPRESSIONS = (
    *("@ + @", "@ / @", "@ /@/ @", "@ /= @", "@ * @", "@ - @", "@ < @", "@ > @", "@ >> @", "@ < @ > @"),
    *("@ < @ > (@)", "@<@>(@)", "@<@>`t`", "@ --> @", "@ <!--@", "@<!--@\n", "@++", "@--", "++@", "--@", "!@"),
    *("- @", "+@", "typeof @", "void @", "await @", "yield @", "@ ? @ : @", "@?.5:@", "@?.a", "@?.[@]", "@.eval"),
    *("@.if", "@.#eval", "@.return", "@[@]", "@(@)", "@(@,@)", "@`t${@}u`", "(@)", "(@,@)", "@ = @", "@ += @"),
    *("@ => @", "@ in @", "@ instanceof @", "@ && @", "@ ?? @", "@ ** @", "...@", "@ as a", "@!", "@ satisfies b"),
    *("<a>@", "[a]=@", "({a,b:eval}=@)", "({eval=@}=@)", "async (@)=>{$}", "@/**/@", "@//\n@", "@/*\n*/@", "@\n@"),
    *("@\n/@/ @", "@\n++@", "@\n(@)", "@\n[@]", "@\n`@`", "@\n!@", "@\n-@", "delete @", "@;@"),
    *("@({a:{eval(a){$}}})",),
)
STATEMENTS = (
    *("@", "@;", "{$}", "{$}\n@", "{a,b}", "{eval(@)\n{$}}", "{eval(this)\n{}}", "{eval(this,a)\n{$}}"),
    *("{eval(a){$}}", "{get\neval(this)\n{}}", "{async\neval(a)\n{$}}", "{a:{eval(this)\n{}}}"),
    *("a=>{eval(this)\n{}}", "{eval:@}", "return\n{eval(this)\n{}}", "a:{eval(this)\n{}}", "a++\n{eval(this)\n{}}"),
    *("({eval(a){$}})", "{get a(){}}", "if(@)@", "if(@)@;else @", "if(@){$}@", "if(@){$}\n@", "if(@)/@/.a"),
    *("while(@)@", "do @;while(@)@", "do{$}while(@)\n@", "for(;;)@", "for(a of @)@", "for(a in @)@"),
    *("for(const a of @){$}", "for await(a of @)@", "for(let eval of @);", "for(async of=>{};;)@", "return @"),
    *("return\n@", "throw @", "a:@", "eval:{break eval\n@}", "a:for(;;){continue a\n@}"),
    *("eval:for(;;){break\neval\n@}", "eval:for(;;){continue\neval;@}", "switch(@){case @:$\ndefault:$}"),
    *("try{$}catch(eval){$}", "try{$}catch{$}finally{$}\n@", "var a=@", "let a=@,b=@", "const {eval,a:b=@,...c}=@"),
    *("const [a,eval=@]=@", "var a\n@", "function f(){$}@", "function f(){$}\n@", "async function f(eval){$}"),
    *("function* g(){$}", "class A{}@", "class A extends @{}", "class A{eval\n(a){$}}", "class A{a\nb=@}"),
    *("class A{static\neval=@}", "class A{get\neval(){$}}", "class A{'a'=@;}", "class A{static async*eval(){$}}"),
    *("type a=b\n@", "type\na=@", "interface\n@", "declare\n@", "abstract\nclass A{}", "namespace\na\n{$}"),
    *("module\na", "async\nfunction f(){}", "let\na", "/@/.b", "/@/\n", "<!-- @", "--> @", "/* */ --> @"),
    *("// @\r@", "// @\u2028@", "@\n/a//*\n*/eval", "@;/a/ /**/ eval", "/*@*/@", "#!@", "debugger\n@", "debugger;"),
    *("with(@)@", "import a from 'b'", "export {a}", "`${@}`", "({})/@/1", "({a})\n/@/g", ";", "x=>{}\n@"),
    *("a=x=>{}\n@", "a=function(){}\n@", "enum A{}", "a=class{}\n@", "var f=()=>{}\n/@/", "function f(a:@){}"),
    *("let a:b=@", "f<a>(@)", "@ as a\n@", "a!\n@", "let\na\n/@/", 'let\na\n/"/;eval(1)//"', "if(@){$}/'/.b//'"),
    *("function f(){$}\n/'/;eval//'", 'class A{$}/"/.b;@//"', "try{$}finally{$}/'/;@//'", 'x={}\n/"/;@//"'),
    *("for(a of /@/)@", "for(of of /@/.b)@", "for(@ of\n/@/)@", "for(@ of /@/;;)@", "for(let of /@/;;)@", "@ of /@/ @"),
    *("a={a:@}/@", "a={@}\n/@", "f({$}/@/@)", "a=function(){$}/@", "a=class{}\n/@/@", "return{a}/@", "a=>{$}/@/@"),
    *("a?{a}/@:@", "a={}//\n/@", 'a={}/"/;@//"', 'f({},{a}\n/"/;@//")', 'for(a of/"/;@//")@', "[{}/@/@]", "@&&{}/@"),
    *('switch(@){}\n/"/;@//"', '{$}/"/;@//"', 'do{$}while(@)/"/;@//"'),
)


def soup(random: Random) -> str:
    """A short program of pieces that need not fit, with line breaks where they may mean something."""
    glue = random.choice((";", "\n", "\n", " ", ""))
    depths = (random.choice((1, 2, 2, 3)) for _ in range(random.choice((1, 2, 2, 3))))
    return glue.join(_filled(random, random.choice(STATEMENTS), depth) for depth in depths)


def _filled(random: Random, piece: str, depth: int) -> str:
    fill = {"@": _expression, "$": _body}
    return "".join(fill[mark](random, depth - 1) if mark in fill else mark for mark in piece)


def _expression(random: Random, depth: int) -> str:
    if depth > 0:
        return _filled(random, random.choice(ATOMS if random.random() < 0.35 else EXPRESSIONS), depth)
    atom = random.choice(ATOMS)
    return "a" if "@" in atom or "$" in atom else atom


def _body(random: Random, depth: int) -> str:
    pieces = random.choice((0, 1, 1, 2)) if depth > 0 else 0
    return random.choice(("", " ", "\n", ";")).join(
        _filled(random, random.choice(STATEMENTS), depth) for _ in range(pieces)
    )
