//! {"ends": ["returns"], "sample": "pol-define-globals", "calls": [["x", 14]], "value": ["object", "function", [14]], "exec": {"value": ["object", "object", [14]]}}
for(const k of ['JSON','Promise','Object','tools','console']){try{Object.defineProperty(globalThis,k,{value:null})}catch(e){}}return [typeof JSON,typeof tools,await tools.x(14)]
