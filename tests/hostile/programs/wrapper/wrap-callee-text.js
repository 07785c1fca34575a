//! {"ends": ["returns"], "value": true}
return arguments.callee.toString().startsWith('async function(){')
