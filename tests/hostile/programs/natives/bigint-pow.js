//! {"ends": ["throws", "timeout", "returns", "memory"], "sample": "bigint-pow"}
return String(2n**1000000n).length>10
