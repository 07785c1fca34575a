//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Function.call(null, 'return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
