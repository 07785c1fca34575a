//! {"ends": ["returns"], "sample": "pol-promise-then", "calls": [["x", 3]], "value": [[3], 0]}
let n=0;try{Promise.prototype.then=function(a,b){n++;return this}}catch(e){}const r=await tools.x(3);return [r,n]
