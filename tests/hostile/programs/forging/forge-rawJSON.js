//! {"ends": ["returns"], "sample": "forge-rawJSON", "value": ["undefined", "TypeError"]}
let ok;try{ok=typeof JSON.rawJSON;const r=await tools.x(JSON.rawJSON('1e999'));return [ok]}catch(e){return [ok,e.name]}
