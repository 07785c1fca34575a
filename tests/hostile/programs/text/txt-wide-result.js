//! {"ends": ["returns"], "value": 349000}
return '\u4e00'.repeat(349000).length
