//! {"ends": ["timeout"]}
console.log({ get a() { for (;;); } })
