//! {"ends": ["memory", "deadlock", "returns", "throws", "engine", "detached"], "calls": null}
const a = [], open = [];
for (let round = 0; round < 30; round++) {
  try { for (;;) a.push(new Array(1 + Math.floor(Math.random() * 100)).fill(1)) } catch {}
  for (let i = 0; i < 10; i++) try { open.push(tools.x(i)) } catch { a.length -= 1 }
}
return (await Promise.allSettled(open)).length
