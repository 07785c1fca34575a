//! {"ends": ["syntax"], "calls": [], "console": []}
});
console.log('outside');
(async function () {
