//! {"ends": ["returns"], "sample": "code-fn-proto-of-fake"}
try{const v=Object.getPrototypeOf(Object.getPrototypeOf(async()=>{}).constructor)('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
