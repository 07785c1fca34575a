//! {"ends": ["syntax", "returns", "throws"]}
async function f(a = await 1) {}
return 1
