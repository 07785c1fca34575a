//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Promise.resolve().then.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
