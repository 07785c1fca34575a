//! {"ends": ["returns"], "value": 1}
for (let i = 0; i < 1e5; i++) console.log('line');
return 1
