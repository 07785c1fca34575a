//! {"ends": ["timeout", "memory", "throws", "returns"]}
return BigInt('9'.repeat(1e6)) > 0n
