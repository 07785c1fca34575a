//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Object.getOwnPropertyDescriptor(Error.prototype, 'message').set.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
