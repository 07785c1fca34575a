//! {"ends": ["timeout"]}
const spin = async () => { for (;;) await null };
yield_control();
await spin()
