//! {"ends": ["returns", "throws", "bridge-limit"]}
for (let i = 0; i < 5000; i++) setTimeout(() => {}, 0);
return 1
