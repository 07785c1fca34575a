//! {"ends": ["returns"]}
console.log({ get a() { throw 1 } });
return 1
