//! {"ends": ["timeout"]}
for (;;) Date.parse('Tue, 01 Jan 2030 00:00:00 GMT')
