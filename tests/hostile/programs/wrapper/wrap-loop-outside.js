//! {"ends": ["timeout"]}
});
for (;;);
(async function () {
