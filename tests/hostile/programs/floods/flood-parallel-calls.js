//! {"ends": ["bridge-limit"], "calls": null}
await Promise.all(Array.from({ length: 33 }, (_, i) => tools.x(i)))
