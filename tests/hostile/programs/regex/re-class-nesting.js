//! {"ends": ["returns", "throws"]}
return new RegExp('[' + '[a]'.repeat(1e4) + ']', 'v').test('a')
