//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Object.getOwnPropertyDescriptor(Object.prototype, '__proto__').get.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
