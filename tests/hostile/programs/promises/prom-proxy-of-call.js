//! {"ends": ["returns", "detached", "throws"], "calls": null}
const a = tools.x(1);
return await new Proxy(a, {})
