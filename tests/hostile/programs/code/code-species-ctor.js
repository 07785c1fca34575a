//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (Object.getOwnPropertyDescriptor(Promise, Symbol.species).get.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
