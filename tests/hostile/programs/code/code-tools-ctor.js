//! {"ends": ["returns"], "value": ["refused", "TypeError"], "exec": {"value": ["refused", "EvalError"]}}
try {
  const v = await (tools.x['constructor'].constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
