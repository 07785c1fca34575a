//! {"ends": ["returns"], "sample": "code-proxy-ctor"}
try{const v=new Proxy(function(){},{}).constructor('return 1')();return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
