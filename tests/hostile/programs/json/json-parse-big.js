//! {"ends": ["returns", "throws", "timeout", "memory"], "sample": "json-parse-big"}
let s='['+'1,'.repeat(5e6)+'1]';return JSON.parse(s).length
