//# interface
interface A { x: number }
const y = 1;
//# interface extends
interface A<T> extends B<T>, C { (x: number): void; new (): A<T>; [k: string]: any; m?(): void; readonly x: T }
f();
//# type alias
type A = string;
f();
//# type alias without semicolon
type A = string
f()
//# type alias over lines
type A =
  | { a: 1 }
  | { b: 2 };
f();
//# generic alias
type A<T, U extends T = T> = { [K in keyof T]: U };
f();
//# conditional alias
type A<T> = T extends (infer U)[] ? U : T extends string ? never : T;
f();
//# alias in a block
if (a) { type B = string; const c: B = ""; }
//# alias in a function
function f() { type B = string; interface C { d: B } return 1; }
//# alias at the end
f();
type A = string;
//# only types
interface A {} type B = A;
//# declare const
declare const a: number; f(a);
//# declare let and var
declare let a: number, b: string; declare var c: any; f();
//# declare function
declare function f(a: number): string; f(1);
//# declare class
declare class A { x: number; m(): void; } f();
//# declare abstract class
declare abstract class A<T> { abstract x: T; } f();
//# declare enum
declare enum A { B, C = 2 } f();
//# declare const enum
declare const enum A { B } f();
//# declare namespace
declare namespace N { const x: number; function f(): void; } g();
//# declare nested namespace
declare namespace A.B { let x: number; } g();
//# declare module
declare module "x" { export const y: number; } g();
//# declare module without body
declare module "x"; g();
//# declare type
declare type A = string; f();
//# declare interface
declare interface A { x: number } f();
//# overloads
function f(a: string): string;
function f(a: number): number;
function f(a: any): any { return a; }
//# overloads without semicolons
function f(a: string): string
function f(a: number): number
function f(a: any): any { return a }
//# async overloads
async function f(a: string): Promise<string>;
async function f(a: any): Promise<any> { return a; }
//# generator overloads
function g(): void;
function g(...a: any[]): any { return a; }
//# namespace with types
namespace N { interface A {} type B = string; }
f();
//# namespace with exported types
namespace N { export interface A { x: number } export type B = A; }
f();
//# empty namespace
namespace N {}
f();
//# nested namespace of types
namespace A { namespace B { type C = string; } }
f();
//# interface then parenthesis
const a = b
interface C {}
(d)
//# alias with semicolon then parenthesis
const a = b
type C = string;
(d)
//# alias with semicolon then bracket
const a = b
type C = string;
[d].map(e)
//# alias with semicolon then template
const a = b
type C = string;
`d`.length
//# alias with semicolon then plus
const a = b
type C = string;
+d
//# alias with semicolon then minus
const a = b
type C = string;
-d
//# alias with semicolon then regexp
const a = b
type C = string;
/d/.test(e)
//# alias with semicolon then increment
const a = b
type C = string;
++d
//# alias with semicolon then identifier
const a = b
type C = string;
d()
//# interface then bracket
const a = b
interface C {}
[d].map(e)
//# interface then template
const a = b
interface C {}
`d`.length
//# interface then minus
const a = b
interface C {}
-d
//# comment between
const a = b // x
/* y */ interface C {} // z
/* w */ (d)
//# after a block
if (a) {}
interface C {}
(d)
//# after an object
a = {}
interface C {}
(d)
//# after a function declaration
function f() {}
interface C {}
(d)
//# after a semicolon
a = b;
interface C {}
(d)
//# first in a block
{
  interface C {}
  (d)
}
//# first in the program
interface C {}
(d)
//# declare then parenthesis
const a = b
declare const c: number;
(d)
//# overload then parenthesis
const a = b
declare function f(): void;
[1].map(a)
//# directive after an alias
function f() { type A = 1; "use strict"; return this; }
//# alias on the line of another statement
const a = 1; type B = string; const c = 2; interface D {} const e = 3;
//# interface between statements on a line
f(); interface D {} (g)
//# comments about types
// type A = string
/* interface B {} */
const a = 1;
//# type as a call
type(1); type[0]; type.x;
//# declare as a call
declare(1); declare.x;
//# interface with methods over lines
interface A {
  // comment
  m(a: number): void;
  /** doc */
  n?: string;
}
const a: A = null;
//# alias of a function type
type F = (a: number, b?: string) => Promise<void>;
const f: F = async () => {};
//# alias of a constructor type
type F = abstract new (...args: any[]) => object;
f();
//# alias of template
type F = `${A}-${B}`;
f();
//# alias of typeof
type F = typeof a.b; type G = typeof import("x"); type H = typeof a<string>;
f();
//# alias of keyof typeof
type F = (typeof xs)[number]; type K = keyof typeof o;
f();
//# getters in interface
interface A { get x(): number; set x(v: number) }
f();
//# accessor types over lines
type A = {
  a: string
  b: number
  c(): void
}
f()
//# unique symbol in interface
interface A { readonly [Symbol.iterator]: unique symbol; [k: `a${string}`]: number }
f();
//# asserts in interface
interface A { f(x: unknown): asserts x is string; g(this: A): this is B }
f();
//# abstract constructor in interface
interface A { c: abstract new () => void }
f();
//# global augmentation
declare global { interface Window { x: number } }
f();
//# alias with a comment at the end
type A = string // the end
f()
//# alias of a long union
type A = "a" | "b" | "c" | 1 | 2 | 3 | true | null | undefined;
f();
//# alias with object and method
type A = { m(): void, n: () => void };
f();
//# labelled after an interface
interface A {}
x: for (;;) break x;
//# variance
interface A<in T, out U, in out V> {} type B<in T> = T;
f();
