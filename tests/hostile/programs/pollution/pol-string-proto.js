//! {"ends": ["returns"], "sample": "pol-string-proto", "calls": [["x", 12]], "value": [[12], 0]}
let s=0;for(const k of ['slice','charCodeAt','concat'])try{String.prototype[k]=()=>{s++;return 'evil'}}catch(e){}console.log('x'.repeat(5));return [await tools.x(12),s]
