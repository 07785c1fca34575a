//! {"ends": ["timeout", "memory", "throws", "returns"]}
return (await Array.fromAsync({ length: 2 ** 32 - 1 })).length
