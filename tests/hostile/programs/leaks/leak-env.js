//! {"ends": ["returns"], "value": ["undefined", "undefined", "undefined", "undefined", "undefined", "undefined", "undefined", "undefined"]}
return [typeof process, typeof require, typeof __dirname, typeof global, typeof window, typeof self, typeof module, typeof exports]
