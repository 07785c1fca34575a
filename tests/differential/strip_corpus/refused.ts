//# enum
enum A { B, C }
//# enum with values
enum A { B = 1, C = "x", D = 1 << 2 }
//# const enum
const enum A { B }
//# enum in a function
function f() { enum A { B } return A.B; }
//# enum in a block
if (a) { enum B { C } }
//# enum over lines
enum Color {
  Red = "RED",
  Green = "GREEN",
}
return Color.Red;
//# namespace with value
namespace N { export const x = 1; }
//# namespace with function
namespace N { export function f() {} }
//# namespace with statement
namespace N { f(); }
//# namespace with class
namespace N { class A {} }
//# namespace with type and value
namespace N { export type A = string; export let b = 1; }
//# nested namespace with value
namespace A { namespace B { export const c = 1; } }
//# dotted namespace with value
namespace A.B { export const c = 1; }
//# module keyword
module M { export const x = 1; }
//# parameter property private
class A { constructor(private a: number) {} }
//# parameter property public
class A { constructor(public a: number, b: string) {} }
//# parameter property readonly
class A { constructor(readonly a: number) {} }
//# parameter property protected readonly
class A { constructor(protected readonly a: number = 1) {} }
//# parameter property override
class A extends B { constructor(override a: number) { super(); } }
//# parameter property in expression
const A = class { constructor(private a) {} };
//# cast
const x = <number>y;
//# cast any
(<any>x).y = 1;
//# cast in call
f(<string>x);
//# cast of object
const x = <T>{ a: 1 };
//# cast generic
const x = <Array<number>>y;
//# import equals require
import x = require("x");
//# import alias
import A = B.C;
//# export assignment
export = x;
//# namespace with enum
namespace N { export enum A { B } }
//# namespace of an alias import
namespace N { import A = B.C; export const x = A; }
//# enum beside types
type A = string; enum B { C } interface D {}
