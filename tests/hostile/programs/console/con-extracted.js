//! {"ends": ["returns"], "console": ["free"]}
const { log } = console;
log('free');
return 1
