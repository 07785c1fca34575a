//! {"ends": ["returns"]}
let n = 0;
for (const s of ['', '9'.repeat(1e5), '+', '2020-13-45T99:99:99Z', 'Jan'.repeat(1e4), '(('.repeat(1e4), '2020-01-01T00:00:00+99:99', '\0', '\ud800']) n += Number.isNaN(Date.parse(s)) ? 1 : 0;
return n
