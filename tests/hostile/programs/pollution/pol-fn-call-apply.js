//! {"ends": ["returns"], "sample": "pol-fn-call-apply", "calls": [["x", 8]], "value": [[8], 0]}
let n=0;try{Function.prototype.call=()=>n++}catch(e){}try{Function.prototype.apply=()=>n++}catch(e){}return [await tools.x(8),n]
