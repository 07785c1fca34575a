//! {"ends": ["returns"], "sample": "pol-array-index-setter", "calls": [["x", 6]], "value": [[6], 0]}
let got=0;try{Object.defineProperty(Array.prototype,'0',{set(v){got++},get(){return 'evil'}})}catch(e){}return [await tools.x(6),got]
