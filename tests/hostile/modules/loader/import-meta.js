//! {"codes": [], "result": [[], "undefined", "undefined"]}
globalThis.__codemode_result__ = [Object.keys(import.meta), typeof import.meta.url, typeof import.meta.resolve];
