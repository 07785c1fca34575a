//! {"ends": ["returns"], "value": "ok"}
for (let i = 0; i < 1e5; i++) { const r = Math.random(); if (!(r >= 0 && r < 1)) return r }
return 'ok'
