//! {"ends": ["returns"], "sample": "leak-coerce-no-call", "value": 0}
String(tools.a.b);tools.a==1;`${tools.q}`;JSON.stringify(tools);await 1;return 0
