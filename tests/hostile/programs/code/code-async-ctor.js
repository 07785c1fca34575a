//! {"ends": ["returns"], "sample": "code-async-ctor"}
try{const v=(async()=>{}).constructor('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
