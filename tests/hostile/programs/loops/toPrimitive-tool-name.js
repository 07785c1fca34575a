//! {"ends": ["timeout"]}
return await tools[{ toString() { for (;;); } }](1)
