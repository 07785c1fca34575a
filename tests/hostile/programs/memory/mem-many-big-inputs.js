//! {"ends": ["serialization", "memory", "deadlock", "engine", "detached", "throws"], "calls": null}
return (await Promise.all(Array.from({ length: 32 }, () => tools.x('x'.repeat(1e6))))).length
