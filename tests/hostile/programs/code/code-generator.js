//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Object.getPrototypeOf(function* () {}).constructor('yield 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
