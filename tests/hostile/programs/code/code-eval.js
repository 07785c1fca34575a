//! {"ends": ["returns"], "sample": "code-eval"}
try{const v=eval('1');return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
