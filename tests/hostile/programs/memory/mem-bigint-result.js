//! {"ends": ["serialization"], "sample": "mem-bigint-result"}
let x=3n**600000n;return {x}
