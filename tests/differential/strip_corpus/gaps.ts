//# type named like a keyword
type of = 1; type as = 2; type type = 3; type is = 4; type async = 5;
f();
//# index signatures
class A { [k: string]: any; static [k: number]: string; readonly [k: symbol]: any; a = 1; }
//# generic import type
let i: import("x").Y<number>;
//# generic call signatures on lines of their own
interface A {
  <T>(a: T): T
  <T, U>(a: T, b: U): T
}
//# a cast ended by a line that starts with a bracket
const x = y as string
[a, b] = [b, a]
//# a type ended by a line that starts with an operator
type X = string
+b
