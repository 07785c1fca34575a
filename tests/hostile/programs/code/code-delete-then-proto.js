//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await ((() => { try { delete Function.prototype.constructor } catch {} return (() => {}).constructor('return 1')() })());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
