//! {"ends": ["returns"], "value": [true, 1], "calls": []}
for (const attack of [
  () => { Math.random = () => 7 },
  () => { Math.floor = () => 7 }
]) { try { attack() } catch {} }
return [Math.random() < 1, Math.floor(1.5)]
