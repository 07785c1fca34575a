//! {"ends": ["returns"], "value": 1}
for (let i = 0; i < 2e5; i++) console.log();
return 1
