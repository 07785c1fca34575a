//! {"ends": ["memory", "timeout", "deadlock"]}
let f = null;
for (;;) { const g = f; f = () => g }
