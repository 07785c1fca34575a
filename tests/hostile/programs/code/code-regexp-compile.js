//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (typeof RegExp('a').compile('b').constructor.constructor('return 1')());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
