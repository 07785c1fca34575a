//! {"ends": ["returns"], "value": 0}
const a: Array<Map<string, Array<number>>> = [];
function f<T extends { a: T }>(x: T): x is T { return true }
return a.length
