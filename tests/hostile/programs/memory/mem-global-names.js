//! {"ends": ["memory", "timeout", "deadlock"]}
for (let i = 0; ; i++) globalThis['g' + i] = i
