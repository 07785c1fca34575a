//! {"ends": ["returns"], "value": 6}
let refused = 0;
for (const id of ['admin', 'host:core:', 'host:core:__proto__', 'namespace:cal:events.add', 'plugin:core:admin', 'host:core:admin\u0000'])
  try { await tools.call(id, 1) } catch { refused++ }
return refused
