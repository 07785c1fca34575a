//! {"ends": ["returns"], "value": 1}
for (let i = 0; i < 5000; i++) console.log();
return 1
