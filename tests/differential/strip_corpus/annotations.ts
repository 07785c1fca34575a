//# const
const x: number = 1;
//# let without value
let x: string;
//# var with union
var x: string | number | null = null;
//# several declarators
let a: number = 1, b: string = "2", c: boolean;
//# object type
const p: { x: number; y?: string } = { x: 1 };
//# object type over lines
const p: {
  x: number;
  y: string;
} = { x: 1, y: "2" };
//# array type
const xs: number[] = [1, 2];
//# generic array
const xs: Array<number> = [1, 2];
//# readonly array
const xs: readonly string[] = [];
//# tuple
const t: [number, string, ...boolean[]] = [1, "a", true];
//# named tuple
const t: [a: number, b?: string] = [1];
//# function type
const f: (a: number, b: string) => void = () => {};
//# constructor type
const C: new (a: number) => object = Object;
//# abstract constructor type
let C: abstract new () => object;
//# type query
const a = 1; const b: typeof a = 2;
//# keyof
let k: keyof { a: number } = "a";
//# indexed access
let v: { a: number }["a"] = 1;
//# conditional type
let c: string extends number ? true : false = false;
//# mapped type
let m: { [K in "a" | "b"]: number } = { a: 1, b: 2 };
//# mapped type modifiers
let m: { readonly [K in "a" | "b"]?: number } = {};
//# mapped type removal
let m: { -readonly [K in "a" | "b"]-?: number } = { a: 1, b: 2 };
//# mapped type as
let m: { [K in "a" as `x_${K}`]: number };
//# template literal type
let s: `a${string}b` = "axb";
//# literal types
let l: 1 | "a" | true | -1 | null | undefined = 1;
//# bigint literal type
let l: 1n = 1n;
//# unique symbol
const s: unique symbol = Symbol();
//# intersection
let i: { a: 1 } & { b: 2 };
//# leading bar
let u: | "a" | "b" = "a";
//# leading bar over lines
let u:
  | "a"
  | "b" = "a";
//# infer
let i: number[] extends (infer T)[] ? T : never;
//# infer with constraint
let i: [1] extends [infer T extends number] ? T : never;
//# import type in a type
let i: import("x").Y;
//# typeof import
let i: typeof import("x");
//# qualified name
let q: A.B.C<D.E> = 1;
//# any and unknown
let a: any, u: unknown, n: never, o: object, s: symbol, b: bigint;
//# function parameters
function f(a: number, b: string = "x", ...rest: number[]): void {}
//# optional parameters
function f(a?: number, b?: string) { return a; }
//# optional parameter without type
function f(a?, b?) { return a; }
//# destructured parameter
function f({ a, b }: { a: number; b: string }, [c]: number[] = [1]) { return a; }
//# destructured with defaults
function f({ a = 1, b: { c } = { c: 2 } }: { a?: number; b?: { c: number } } = {}) { return c; }
//# destructured declaration
const { a, b }: { a: number; b: string } = { a: 1, b: "" };
//# array destructuring
const [a, b]: [number, string] = [1, ""];
//# this parameter
function f(this: Window, a: number) { return this; }
//# only a this parameter
function f(this: Window) { return this; }
//# this parameter with a comment
function f(this: Window /* w */ , /* a */ a: number) { return a; }
//# this parameter over lines
function f(
  this: Window,
  a: number,
) { return a; }
//# return type
function f(): Promise<Map<string, number[]>> { return null; }
//# type predicate
function isS(x: unknown): x is string { return typeof x === "string"; }
//# this predicate
class A { isB(): this is B { return true; } }
//# assertion function
function assert(x: unknown): asserts x { if (!x) throw 1; }
//# assertion function with type
function assert(x: unknown): asserts x is string { if (!x) throw 1; }
//# arrow
const f = (a: number, b?: string): string => b ?? String(a);
//# arrow predicate
const f = (a: unknown): a is string => true;
//# arrow asserts
const f: (a: unknown) => asserts a is string = (a) => {};
//# async arrow
const f = async (a: number): Promise<number> => a;
//# arrow in call
[1].map((x: number): number => x + 1).filter((x): x is number => !!x);
//# arrow with object type result
const f = (): { a: number } => ({ a: 1 });
//# arrow with function type result
const f = (): (() => void) => () => {};
//# function expression
const f = function (a: number): number { return a; };
//# generator
function* g(a: number): Generator<number, void, unknown> { yield a; }
//# async generator
async function* g(a: number): AsyncGenerator<number> { yield a; }
//# object methods
const o = { f(a: number): void {}, async g(b: string): Promise<void> {}, *h(): Generator {}, get x(): number { return 1; }, set x(v: number) {} };
//# object arrow property
const o = { f: (a: number): number => a, g: function (b: string) {} };
//# catch
try { f(); } catch (e: unknown) { g(e); }
//# catch any
try {} catch (e: any) {} finally {}
//# for of
for (const x of xs as number[]) f(x);
//# for with type
for (let i: number = 0; i < 3; i++) f(i);
//# for in
for (const k in o as any) f(k);
//# for await
for await (const x of gen<number>()) f(x);
//# definite
let x!: number; x = 1;
//# definite in class
class A { x!: number; y!: string; }
//# non-ASCII in type
const s: "ñandú" | "日本" = "日本"; const after = 1;
//# non-ASCII identifiers
const größe: Größe = 1; function été(à: Été): Çà { return à; }
//# comment inside a type
const x: /* a */ number /* b */ = 1; // c
//# comment before a type
function f(a /* x */ : /* y */ number) {}
//# line comment in a type
const x: // first
  number // second
  = 1;
//# string that looks like a type
const s = "let x: number = 1 as any"; const t = 'a!: b'; const u = `c as d ${1 as any} e: f`;
//# regular expression that looks like a type
const r = /a: number as b!/g; const q: RegExp = /<T>(x)/;
//# ternary with arrow
const f = a ? (b) : (c) => d;
//# ternary with typed arrow
const f = a ? (b: number) => b : (c: string): string => c;
//# label and object
a: for (;;) { break a; }
//# type names as values
const type = 1, of = 2, as = 3, is = 4, declare = 5, namespace = 6, abstract = 7, readonly = 8, satisfies = 9, keyof = 10, infer = 11, asserts = 12, any = 13, string = 14, number = 15;
//# contextual keywords as statements
var type = 1; type = 2; var declare = 1; declare = 3; var namespace = {}; namespace.x = 1; var abstract = 1; abstract++;
//# keywords as properties
o.type = o.as; o.interface = o.enum; o.declare = o.namespace; const q = { type: 1, enum: 2, as: 3, interface: 4, declare: 5 };
//# unicode escapes
const \u0061b: number = 1;
//# getter return
class A { get x(): number { return 1; } set x(v: number) {} static get y(): string { return ""; } }
//# nested functions
function a(x: number): (y: string) => void { return function b(y: string): void { const z: number = x; }; }
//# default values with casts
function f(a: number = 1 as number, b = undefined as any) {}
//# default value with generic call
function f(a: Set<string> = new Set<string>()) {}
//# optional in arrow
const f = (a?: number) => a;
//# typed rest destructuring
function f(...[a, b]: [number, string]) {}
//# long union over lines
function f(
  a:
    | string
    | number,
  b: {
    c: string,
  },
): Promise<
  string
> { return null; }
//# getter with type over lines
const o = {
  get a(): {
    b: number;
  } { return { b: 1 }; },
};
//# asserts this
class A { check(): asserts this is B {} }
//# asserts bare this
class A { check(): asserts this {} }
//# variable called undefined type
let u: undefined = undefined, v: void = undefined, n: null = null;
//# recursive object type
let t: { a: { b: { c: [number, { d: string }] } } };
//# method signatures in object type
let t: { f(a: number): void; new (a: string): object; (b: number): string; readonly g: number; [k: string]: unknown; get h(): number; set h(v: number) };
//# optional call signature
let t: { f?(a: number): void };
//# spread in tuple
let t: [...A, ...B];
//# this type
class A { f(): this { return this; } g(x: this) {} }
//# array of functions
let fs: ((a: number) => void)[] = [];
//# generic function type
let f: <T>(a: T) => T = (a) => a;
//# constructor in object type
let c: { new <T>(a: T): T };
