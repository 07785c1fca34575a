//# alias then parenthesis
const a = b
type C = string
;(d)
//# two interfaces between
const a = b
interface C {}
interface D {}
(d)
//# field without semicolon then declared then computed
class A {
  a = 1
  declare b: number;
  ["c"] = 2
}
//# cast const
const x = <const>["a"];
//# cast before a line that starts with a bracket
const x = y as string
[a].forEach(b)
//# cast to a union before a line that starts with a bracket
const x = y as A | B[]
[a].forEach(b)
