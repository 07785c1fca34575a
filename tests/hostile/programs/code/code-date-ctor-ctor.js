//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Date.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
