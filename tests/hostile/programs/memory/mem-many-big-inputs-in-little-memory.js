//! {"ends": ["serialization", "memory", "deadlock", "engine", "detached", "throws"], "calls": null, "memory_mib": 40}
return (await Promise.all(Array.from({ length: 32 }, () => tools.x('x'.repeat(1e6))))).length
