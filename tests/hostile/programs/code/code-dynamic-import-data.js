//! {"ends": ["syntax"], "sample": "code-dynamic-import-data"}
try{const v=await import('data:text/javascript,1');return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
