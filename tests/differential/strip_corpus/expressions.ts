//# as
const x = y as number;
//# as const
const x = { a: 1 } as const;
//# as const array
const xs = ["a", "b"] as const;
//# as chain
const x = y as unknown as string;
//# as in call
f(x as number, y as string);
//# as in member
(x as any).y.z;
//# as with object type
const x = y as { a: number; b: string[] };
//# as with function type
const x = y as (a: number) => string;
//# as over lines
const x = y as {
  a: number;
};
//# as on the next line
const x = y
  .z as string;
//# as in condition
if ((x as number) > 1) f();
//# as then comparison
const b = (x as number) < (y as number);
//# as before operator
const b = x as number + 1;
//# as in template
const s = `${x as string} and ${(y as any).z}`;
//# as in arrow body
const f = (x) => x as number;
//# as in object
const o = { a: x as number, b: y as string, ...(z as object) };
//# as in array
const a = [x as number, ...(y as number[])];
//# as in return
return x as number;
//# as in await
const r = await (f() as Promise<number>);
//# await then as
const r = (await f()) as number; const q = await f() as { a: string };
//# as assignment target
(x as any) = 1;
//# as member assignment
(x as any).y = 1;
//# as in ternary
const x = a ? b as number : c as string;
//# as in logical
const x = a as boolean && b as boolean || c as any;
//# as in switch
switch (x as string) { case "a" as string: break; }
//# as in throw
throw e as Error;
//# as in yield
function* g() { yield x as number; }
//# as in new
new (X as any)(1);
//# as in typeof
typeof (x as any);
//# as keyword as identifier
const as = 1; f(as as number);
//# satisfies
const x = { a: 1 } satisfies { a: number };
//# satisfies in call
f({ a: 1 } satisfies T);
//# as const satisfies
const x = { a: 1 } as const satisfies Record<string, number>;
//# satisfies then as
const x = y satisfies A as B;
//# satisfies over lines
const x = {
  a: 1,
} satisfies Record<
  string, number
>;
//# satisfies as identifier
var satisfies = 1; satisfies = 2;
//# non-null
const x = y!;
//# non-null member
a!.b!.c!.d;
//# non-null call
f!(1)!; a.b!(2);
//# non-null index
a![0]!.b;
//# non-null and optional chain
a?.b!.c; a?.[0]!.d; a!?.b;
//# non-null in assignment
a! = 1; a!.b! = 2; a![0]! += 1;
//# non-null with increment
a!++; --b!;
//# double non-null
a!!.b;
//# non-null not equal
a! != b; a! !== b; a != b;
//# non-null and not
!a!; !!a!;
//# non-null before as
a! as number; a!.b as string;
//# non-null template
`${a!}`;
//# non-null await
(await f())!.x; await f()!;
//# non-null typeof
typeof a!.b === "string";
//# non-null ternary
a! ? b! : c!;
//# non-null in
"a" in b!;
//# non-null new line
a!
b();
//# generic call
f<number>(1); a.b<string, number>(2);
//# generic call nested
f<Map<string, Array<number>>>(1); g<A<B<C>>>();
//# generic new
new Map<string, number>(); new Set<A<B>>([1]);
//# generic new without arguments
const m = new Map<string, number>;
//# generic optional call
a?.<string>(1); a?.b<number>(2);
//# generic await
const r = await tools.get<{ a: number }>({ id: 1 });
//# generic with function type
f<(a: number) => void>(1);
//# generic with object type
f<{ a: number; b: string }>(1);
//# generic with tuple
f<[a: number, b: string]>(1);
//# instantiation
const f = g<string>; const h = a.b<number>;
//# comparisons
const a = b < c, d = e > f; const g = (h < i) > j;
//# comparison with parentheses
if (a < b && c > d) f();
//# shifts
a >> b; a >>> b; a << b; a >>= 1; a >>>= 2;
//# comparison call ambiguity
f(a < b, c);
//# generic arrow
const f = <T>(x: T): T => x;
//# generic arrow with constraint
const f = <T extends object, U = string>(x: T, y: U): [T, U] => [x, y];
//# generic arrow trailing comma
const f = <T,>(x: T) => x;
//# generic async arrow
const f = async <T>(x: T): Promise<T> => x;
//# const type parameter
const f = <const T,>(x: T) => x; function g<const T extends readonly unknown[]>(x: T) {}
//# generic function
function f<T, U extends keyof T = keyof T>(x: T, k: U): T[U] { return x[k]; }
//# generic function expression
const f = function <T>(x: T) { return x; };
//# generic generator
function* g<T>(x: T): Generator<T> { yield x; }
//# generic method
const o = { f<T>(x: T): T { return x; }, async g<T>() {}, *h<T>() {} };
//# arrow result over lines
const f = (a: number):
  number => a;
//# arrow result over lines with object
const f = (a: number): {
  b: number;
} => ({ b: a });
//# arrow result far below
const f = (
  a: number,
): Promise<
  string
> => null;
//# async arrow result over lines
const f = async (a): Promise<{
  b: number;
}> => ({ b: a });
//# arrow predicate over lines
const f = (a): a is
  string => true;
//# generics over lines after return
function f() {
  return <T,
  >(x: T) => x;
}
//# generics over lines in const
const f = <
  T,
  U,
>(x: T, y: U) => x;
//# async generics over lines
const f = async <
  T,
>(x: T) => x;
//# generics over lines in function
function f<
  T,
  U
>(x: T, y: U) { return x; }
//# generic call over lines
f<
  string,
  number
>(1, 2);
//# generic call in chain
a
  .b<string>()
  .c<number>((x: number): string => "")
  .d!();
//# arrow in arguments over lines
f((x: number):
  string => "", 1);
//# arrow result with a comment
const f = (a) /* c */ : /* d */ number => a;
//# arrow result with a line comment
const f = (a): // c
  number => a;
//# immediately called arrow
(async (): Promise<void> => { await f(); })();
//# curried
const f = (a: number) => (b: string) => (c: boolean): void => {};
//# arrow with default cast
const f = (a = b as number, c = d!) => a;
//# parenthesised arrow and as
const f = ((a) => a) as (a: number) => number;
//# arrow as
const f = (a => a) as any;
//# object then as
({ a: 1 } as any).a;
//# function then as
(function () {} as any)();
//# class expression
const A = class<T> extends B<T> implements C { x: T; };
//# class expression called
new (class { constructor(a: number) {} })(1);
//# spread with cast
f(...(x as number[]));
//# delete with cast
delete (x as any).y;
//# void with cast
void (x as any);
//# optional chain with cast
(x as any)?.y?.[0]?.(1);
//# comma with casts
(a as any, b as any);
//# nullish with cast
const x = (a as any) ?? (b as any);
//# exponent
(a as number) ** 2;
//# in with cast
if ("a" in (x as object)) f();
//# instanceof with cast
if ((x as any) instanceof Y) f();
//# tagged template
(f as any)`a${1}b`; f`x`;
//# regexp after cast
const x = (a as any) / 2 / 3;
//# template nesting
const s = `a${`b${c as string}`}d`;
//# template with object
const s = `a${{ b: 1 as number }.b}c`;
//# private in
class A { #x: number; has(o: object) { return #x in o; } }
//# import call
const m = await (import("x") as Promise<any>);
//# new target
function F(this: any) { return new.target as any; }
//# sequence in for
for (let i = 0 as number, j = 1 as number; i < j; i++, j--) {}
//# while with cast
while ((x as any).next()) {} do {} while (x!);
//# cast in computed key
const o = { [k as string]: 1, [`a${b!}`]: 2 };
//# cast in index
a[b as number][c!];
//# cast of object in arrow
const f = () => ({ a: 1 } as any);
//# cast of literal
const x = "a" as string, y = 1 as number, z = null as any, w = undefined as any, r = /a/ as RegExp;
//# arrow and comparison
const f = (a: number) => a < 1, g = (b: number) => b > 2;
//# tagged template with generics
f<string>`a${1}b`; a.b<C.D>`x`;
//# comparisons and shifts
i < n >> 1; f(x) < o.p >> 2; a[0] < b >>> c; f(x) < g >= 2; while (lo() < hi >> 1) {} f() < x > -1; f() < x > +y; f() < a < b > c; this < a > [b];
//# shift in an index
const m = xs[lo() < hi >> 1]; return m() < n >> 1;
//# casts over lines with brackets
const x = y as [
  [number, string],
  { [k: string]: A["b"]
    [l: number]: B }
][]; const z = y as A<
  B
>["c"][]
f()
//# union with a qualified name
const x = y as A.B.C | D
//# cast to a union of qualified names
const x = y as A.B.C | D.E.F | undefined;
f(x as A.B.C & D.E, 1);
//# a comment that reads like a cast
// used as before.
const x = 1;
//# tagged template with an array type
const r = sql<Row[]>`x`;
//# tagged template with an object type
const r = sql<{ a: number; b: "x" | null }>`x ${f<string>(1)}`;
//# tagged template with several types
const r = await a.sql<Row, Map<string, A.B>>`x`;
//# tagged template on the next line
const r = sql<Row | null>
`x`;
//# tagged template with a nested generic
const r = sql<A<B>>`x`;
//# instantiation at the end of a line
const f = g<string>
h();
//# template of markup
const html = `<b>${x}</b>` + `a<b>`;
//# comparison with a template
const is = a < b && c > `d`;
//# variables named like words
let as = 5, b = 1;
let satisfies = as;
as = satisfies;
