//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const call = tools.x(1);
for (const k of Reflect.ownKeys(call)) if (k !== 'then' && k !== 'constructor') throw k;
call.resolve?.('evil');
return await call
