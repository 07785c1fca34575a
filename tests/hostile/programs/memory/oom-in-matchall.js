//! {"ends": ["returns", "memory", "throws", "deadlock", "detached", "engine", "serialization", "bridge-limit"], "memory_mib": 4, "calls": null}
const f = () => 1, fill = [], keep = [];
for (let size = 20000; size >= 1; size = Math.floor(size / 2)) {
  try { for (;;) fill.push(new Array(size).fill(1)) } catch {}
  for (let j = 0; j < 60; j++) {
    try { for (let i = 0; i < 40; i++) keep.push('a'.matchAll(/a/g)) } catch {}
    if (j % 7 === 0) fill.pop();
    if (j % 3 === 0) keep.length = 0;
    try { fill.push(new Array(1 + j % 9).fill(1)) } catch {}
  }
}
return 1
