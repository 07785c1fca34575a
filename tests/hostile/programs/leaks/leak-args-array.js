//! {"ends": ["returns"], "sample": "leak-args-array", "calls": [["x", 1]], "value": [false, ["toJSON"]]}
let seen=null;await tools.x({toJSON(k){seen=this;return 1}});return [Array.isArray(seen),Object.getOwnPropertyNames(seen)]
