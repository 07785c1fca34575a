//! {"ends": ["memory", "timeout", "deadlock"]}
const t = x => x;
const a = [];
for (;;) a.push(t`${[]}`, [...'abcdef'])
