//! {"ends": ["returns"], "value": 1, "exec": {"ends": ["serialization"]}}
for (let i = 0; i < 100; i++) console.log('\u4e00'.repeat(8000));
return 1
