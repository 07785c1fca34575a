//! {"ends": ["returns"], "value": [true, true, true]}
return [Date.parse('12:00'), Date.parse('10:00 PM'), Date.parse('now')].map(v => Number.isNaN(v) || v < 1e12)
