//! {"ends": ["throws", "returns", "memory"], "sample": "rec-gen-delegate"}
function*g(n){if(n)yield*g(n-1);else yield 1}return [...g(100000)].length
