//! {"ends": ["returns", "memory", "throws"], "value": 32, "calls": null, "exec": {"timeout_ms": 20000}}
return (await Promise.all(Array.from({ length: 32 }, () => tools.x('x'.repeat(1e6))))).length
