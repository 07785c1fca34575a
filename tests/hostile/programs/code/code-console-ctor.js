//! {"ends": ["returns"], "sample": "code-console-ctor"}
try{const v=console.log.constructor('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
