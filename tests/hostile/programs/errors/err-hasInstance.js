//! {"ends": ["returns"], "value": 1}
class E { static [Symbol.hasInstance]() { throw 1 } }
try { return {} instanceof E } catch (e) { return e }
