//! {"ends": ["detached"], "value": ["refused", "EvalError"], "exec": {"ends": ["returns"], "calls": [["x", 1]]}}
try {
  const v = await ((() => { const q = tools.x(1); q.catch(() => {}); const c = q.then.constructor('return 1'); return c() })());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
