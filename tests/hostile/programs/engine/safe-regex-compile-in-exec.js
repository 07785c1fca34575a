//! {"ends": ["returns"], "sample": "safe-regex-compile-in-exec", "value": true}
const r=/(a)/g;const s='a'.repeat(100);let n=0;try{s.replace(r,()=>{r.compile('(((((((((((b)))))))))))');n++;return 'x'})}catch(e){}return n>0
