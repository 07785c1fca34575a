//! {"ends": ["returns", "throws", "memory"]}
let f = function () {};
for (let i = 0; i < 3e4; i++) f = f.bind();
return {} instanceof f
