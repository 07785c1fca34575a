//! {"ends": ["syntax", "throws"]}
const name = '<input>';
return String(await import(name))
