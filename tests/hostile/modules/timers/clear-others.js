//! {"codes": [], "result": 1}
for (let i = -5; i < 50; i++) clearTimeout(i);
for (const odd of [null, {}, 'x', Symbol(), 1n]) clearTimeout(odd);
await new Promise((r) => setTimeout(r, 1));
globalThis.__codemode_result__ = 1;
