//! {"ends": ["returns"], "sample": "code-function"}
try{const v=Function('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
