//! {"ends": ["timeout"]}
for (let i = 0; ; i++) new RegExp('\\p{L}\\p{Lu}' + i, 'iu').test('x')
