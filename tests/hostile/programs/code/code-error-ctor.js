//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (new Error().constructor.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
