//! {"ends": ["returns"], "sample": "code-proto-ctor"}
try{const v=Object.getPrototypeOf(async function(){}).constructor('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
