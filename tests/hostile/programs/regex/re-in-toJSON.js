//! {"ends": ["timeout"]}
return await tools.x({ toJSON: () => /^(a+)+$/.test('a'.repeat(40) + 'b') })
