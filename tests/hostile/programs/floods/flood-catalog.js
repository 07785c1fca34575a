//! {"ends": ["bridge-limit"], "exec": {"ends": ["throws"]}}
for (let i = 0; i < 100; i++) await tools.$search('x')
