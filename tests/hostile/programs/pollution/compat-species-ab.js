//! {"ends": ["returns"], "sample": "compat-species-ab", "value": "TypeError"}
const b=new ArrayBuffer(16);Object.defineProperty(b,'constructor',{value:{[Symbol.species]:function(){return b}}});try{b.slice(1);return 'ran'}catch(e){return e.name}
