//! {"ends": ["returns"], "sample": "safe-date-setters"}
const d=new Date();d.setFullYear({valueOf(){d.setTime(NaN);return 2020}});return d.getTime()
