//! {"ends": ["returns", "throws", "timeout"], "sample": "safe-detach-in-cmp"}
const t=new Uint32Array(1000);try{t.sort(()=>{t.buffer.transfer();return 0})}catch(e){}return t.length
