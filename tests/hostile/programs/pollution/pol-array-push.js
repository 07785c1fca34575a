//! {"ends": ["returns"], "sample": "pol-array-push", "calls": [["x", 1]], "value": [[1], "undefined"]}
try{Array.prototype.push=function(){globalThis.stolen=this;return 0}}catch(e){}const r=await tools.x(1);return [r,typeof stolen]
