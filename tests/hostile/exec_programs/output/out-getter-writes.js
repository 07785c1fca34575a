//! {"ends": ["returns"], "value": 1}
json({ get a() { text('inner'); return 1 } });
return 1
