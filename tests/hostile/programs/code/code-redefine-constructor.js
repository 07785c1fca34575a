//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await ((() => { try { Object.defineProperty(Function.prototype, 'constructor', { value: 1 }) } catch {} return (() => {}).constructor('return 1')() })());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
