//! {"ends": ["returns"], "value": [[1], "undefined"], "calls": [["y", 1]]}
try { Array.prototype.map = null; Object.prototype.pwn = 1; Promise.prototype.then = () => {}; JSON.stringify = () => 'pwn' } catch {}
await yield_control();
return [await tools.y(1), typeof ({}).pwn]
