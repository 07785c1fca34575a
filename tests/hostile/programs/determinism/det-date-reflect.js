//! {"ends": ["returns"]}
const a = Date.now();
return +Reflect.construct(Date, [], Object) - a < 10 || true
