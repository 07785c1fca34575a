// A kernel of the tests: speaks the worker's operations, does what the "program" names.
(function () {
  let out = "", done = false;
  const finish = (line) => { out += line; done = true; };
  const run = (name) => {
    if (name === "call") out = "C{\"id\":1}\nL{}\nT{}";
    else if (name === "long call") out = "C" + "7".repeat(100000) + "\nL{}\nT{}";
    else if (name === "jobs") { const next = () => { Promise.resolve().then(next); }; next(); finish("V{}"); }
    else if (name === "hang") for (;;);
    else if (name === "memory") { const kept = []; for (;;) kept.push("x".repeat(100000) + kept.length); }
    else if (name === "broken") return "kernel-error: broken";
    else if (name === "number") return 7;
    else if (name === "zone") finish("V" + new Date(2020, 0, 1).getTimezoneOffset());
    else finish("V" + JSON.stringify(name));
    return "ok";
  };
  return function (operation, text) {
    if (operation === "drain") { const lines = out; out = ""; return JSON.parse(JSON.stringify(lines)); }
    if (operation === "finished") return done ? "1" : "0";
    if (operation === "reset") { out = ""; done = false; return "ok"; }
    if (operation === "run") return run(JSON.parse(text).js);
    if (text === "end") finish("V{}"); else out = "T" + text;
    return "ok";
  };
})()
