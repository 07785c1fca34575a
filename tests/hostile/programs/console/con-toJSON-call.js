//! {"ends": ["detached"]}
console.log({ toJSON() { return tools.x(1) } });
return 1
