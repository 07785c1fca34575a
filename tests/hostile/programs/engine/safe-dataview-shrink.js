//! {"ends": ["returns"], "sample": "safe-dataview-shrink"}
const b=new ArrayBuffer(64,{maxByteLength:64});const d=new DataView(b,32);try{d.setFloat64({valueOf(){b.resize(8);return 0}},1)}catch(e){return e.name}return 'ok'
