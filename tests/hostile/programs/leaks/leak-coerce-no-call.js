//! {"ends": ["returns"], "sample": "leak-coerce-no-call", "value": 0, "exec": {"ends": ["throws"]}}
String(tools.a.b);tools.a==1;`${tools.q}`;JSON.stringify(tools);await 1;return 0
