//! {"ends": ["memory", "timeout", "deadlock"]}
let q = Promise.resolve();
for (;;) q = q.then(() => {})
