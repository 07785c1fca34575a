//! {"ends": ["bridge-limit"], "calls": null}
await Promise.all(Array.from({ length: 40 }, () => tools.never(1)))
