// Calls every function of the engine on many receivers with spies for arguments; says whether there are many, and
// whether one was given what `look` looks for.
const seen = new Set(), functions = [];
const visit = (value) => {
  if (value === null || !/object|function/.test(typeof value) || seen.has(value)) return;
  seen.add(value);
  if (typeof value === "function") functions.push(value);
  visit(Object.getPrototypeOf(value));
  for (const key of Reflect.ownKeys(value)) {
    const one = Object.getOwnPropertyDescriptor(value, key);
    visit(one.value);
    visit(one.get);
    visit(one.set);
  }
};
for (const name of Reflect.ownKeys(globalThis)) visit(globalThis[name]);
const unnamed = [async function () {}, function* () {}, async function* () {}, [].values(), "a".matchAll(/a/g)];
for (const one of unnamed) visit(one);

let calls = 0;
const spy = function () {
  look(this);
  for (const one of arguments) look(one);
  return calls++ % 2 === 0 ? Object.assign([1], { done: true }) : 1; // else JSON.stringify would nest without end
};
const thing = { valueOf: spy, toString: spy, then: spy, next: spy, length: 1, *[Symbol.iterator]() { look(this); yield 1; } };
const receivers = () => [
  undefined, [1, 2], new Map([[1, 1]]), new Set([1, 2]), new Uint8Array(2), [1].values(), "ab", /a/g,
  Promise.resolve(1), Promise.reject(1), spy, thing, new Date(0), Symbol.iterator, 1n,
];
for (const one of functions) {
  for (const args of [[], [spy], [[1, 2], spy], [thing, spy, spy], [/a/, spy]]) {
    for (const self of receivers())
      try {
        const made = one.apply(self, args);
        look(made);
        if (made instanceof Promise) look(await Promise.race([made, 1]));
      } catch {}
    try { look((0, one)(...args)); } catch {}
    try { look(Reflect.construct(one, args, spy)); } catch {}
  }
}
return [functions.length > 400, found];
