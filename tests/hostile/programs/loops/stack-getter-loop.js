//! {"ends": ["timeout"]}
throw { name: 'x', get stack() { for (;;); } }
