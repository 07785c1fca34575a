//# fields
class A { a: number; b: string = "x"; c?: boolean; d!: number; e; f = 1; }
//# static fields
class A { static a: number = 1; static b: string; static readonly c = 2; private static d = 3; static { this.a = 2; } }
//# access modifiers
class A { private a = 1; protected b: number = 2; public c: string; readonly d = 4; private readonly e: number = 5; }
//# access modifiers on methods
class A { private a() {} protected b(): void {} public c() {} private async d() {} protected static e() {} public get f() { return 1; } private set f(v) {} private *g() {} private async *h() {} }
//# override
class A extends B { override a() {} override b = 1; protected override c(): void {} override async d() {} static override e = 1; override get f() { return 1; } }
//# abstract class
abstract class A { abstract a(): void; abstract b: number; protected abstract c(): string; d() {} abstract get e(): number; abstract set e(v: number); }
//# abstract readonly
abstract class A { abstract readonly a: number; protected abstract readonly b: string; private c = 1; }
//# abstract without semicolons
abstract class A {
  abstract a(): void
  abstract b: number
  c() {}
}
//# constructor
class A { constructor(a: number, b?: string, c: boolean = true) {} }
//# constructor overloads
class A { constructor(a: string); constructor(a: number); constructor(a: any) {} }
//# method overloads
class A { f(a: string): void; f(a: number): void; f(a: any) {} static g(): void; static g(a?: any) {} }
//# method overloads without semicolons
class A {
  f(a: string): void
  f(a: number): void
  f(a: any) {}
}
//# async method overloads
class A { async f(a: string): Promise<void>; async f(a: any) {} private g(): void; private g(a?: any) {} }
//# optional methods
class A { f?(): void; g?(a: number) {} }
//# generics
class A<T, U extends T = T> extends B<T> { m<V>(v: V): V { return v; } }
//# implements
class A implements B {} class C implements D, E<F> {} class G extends H implements I {} class J<T> extends K<T> implements L<T> {}
//# implements over lines
class A
  extends B<C>
  implements D,
    E {
  x = 1;
}
//# extends a call
class A extends f<B>(C) {} class D extends (E as any) {} class F extends G.H<I> {}
//# private names
class A { #a: number = 1; #b?: string; static #c: any; #d(): void {} get #e(): number { return 1; } readonly #f = 1; }
//# computed names
class A { [a]: number = 1; private [b] = 2; [c](): void {} static [d]: string; readonly ["e"]: number; get [f](): number { return 1; } }
//# string and number names
class A { "a": number = 1; 2: string = "x"; "b"(): void {} private "c" = 3; private 4 = 5; }
//# modifier names as fields
class A { private = 1; public = 2; readonly = 3; declare = 4; abstract = 5; override = 6; static = 7; get = 8; set = 9; async = 10; }
//# modifier names as methods
class A { private() {} public() {} readonly() {} declare() {} abstract() {} override() {} static() {} get() {} set() {} async() {} }
//# modifier names as typed methods
class A { private(): void {} static(): void {} get(): void {} set(a: number): void {} async(): void {} async async(): Promise<void> {} static static(): void {} get get(): number { return 1; } }
//# static typed with semicolon
class A { static: number; get: string; set: boolean; foo() {} }
//# fields without semicolons
class A {
  a: number
  b: string = "x"
  c
  d?: number
  e!: string
  f() {}
}
//# field then computed
class A {
  a: number = 1;
  private ["b"] = 2;
  readonly ["c"]: number;
}
//# field then generator
class A {
  a = 1;
  private *b() {}
}
//# field without semicolon then private computed
class A {
  a = 1
  private ["b"] = 2
}
//# field without semicolon then private generator
class A {
  a = 1
  private *b() {}
}
//# arrow fields
class A { f = (a: number): void => {}; private g = async <T>(x: T): Promise<T> => x; h: () => void = () => {}; }
//# arrow field with result over lines
class A { f = (a: number): {
  b: number;
} => ({ b: a }); }
//# this parameter in a method
class A { f(this: A, x: number) {} g(this: this) {} }
//# this types
class A { f(): this { return this; } is(): this is A { return true; } }
//# class expression
const A = class { private x: number = 1; }; const B = class C<T> implements D { }; const E = abstract;
//# nested class
class A { b = class<T> { c: T; }; m() { class D { e!: number; } return D; } }
//# super call
class A extends B { constructor(a: number) { super(a as any); this.x = a!; } x: number; }
//# super generics
class A extends B<string> { m() { return super.m<number>(1)!; } }
//# getter and setter
class A { private _x = 1; get x(): number { return this._x; } set x(v: number) { this._x = v; } static get y(): string { return ""; } }
//# static block
class A { static x: number; static { const y: number = 1; A.x = y as any; } }
//# field initialised with cast
class A { a = 1 as number; b = <T,>(x: T) => x; c = {} as { d: string }; e = f!; }
//# comments between members
class A {
  // one
  private a: number; // two
  /* three */ readonly b = 1; /* four */
  abstract; // five
}
//# abstract class expression position
abstract class A {}
abstract class B extends A { constructor(protected_: number) { super(); } }
//# class with a type parameter default
class A<T = {}> {} class B<T extends object = { a: string }> extends Array<T> {}
//# empty class with modifiers over lines
class A {
  private
  readonly
  x: number = 1;
}
//# accessor with static and override
class A extends B { static override get x(): number { return 1; } protected static override readonly y = 1; }
//# async generator methods
class A { async *[Symbol.asyncIterator](): AsyncGenerator<number> { yield 1; } *[Symbol.iterator](): Iterator<number> {} }
//# definite private
class A { private x!: Map<string, number>; protected readonly y!: string; }
//# optional with readonly
class A { readonly x?: number; private y?: string = "a"; static z?: any; }
//# method with destructured parameters
class A { f({ a, b }: { a: number; b: string }, [c]: [number] = [1], ...d: any[]): void {} }
//# constructor with destructured parameters
class A { constructor({ a }: { a: number } = { a: 1 }) {} }
//# methods with type predicates
class A { isX(x: any): x is X { return true; } assertX(x: any): asserts x is X {} }
//# methods with generics over lines
class A {
  m<
    T,
    U,
  >(x: T): U { return null; }
}
//# class member called type
class A { type: string = ""; type2; static type = 1; interface() {} enum = 1; namespace = 2; }
//# class in a block
{ class A { x: number; } class B extends A {} }
//# error subclass
class MyError extends Error { code: string; constructor(message: string, code: string) { super(message); this.code = code; } }
//# field with function type
class A { on: (e: Event) => void; handlers: Map<string, Array<(x: unknown) => void>> = new Map(); }
//# declare fields
class A { declare a: number; declare readonly b: string; private declare c: any; declare static d: number; e = 1; }
//# index signatures
class A { [k: string]: any; readonly [k: symbol]: any; a = 1; }
//# modifier names as typed fields
class A { private: number; public: string; readonly: boolean; declare: any; override: any; async: any; type: any; }
//# modifier names as typed fields
class A { private: number; public: string; readonly: boolean; declare: any; abstract: any; override: any; async: any; type: any; }
