//! {"ends": ["returns"]}
return [this === globalThis, arguments.length]
