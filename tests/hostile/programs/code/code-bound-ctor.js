//! {"ends": ["returns"], "sample": "code-bound-ctor"}
try{const v=(function(){}).bind().constructor('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
