//! {"ends": ["returns"], "sample": "safe-proxy-invariant", "value": "TypeError"}
const t={};Object.defineProperty(t,'a',{value:1});try{new Proxy(t,{get(){return 2}}).a}catch(e){return e.name}
