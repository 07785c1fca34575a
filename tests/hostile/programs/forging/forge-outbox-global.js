//! {"ends": ["returns"], "sample": "forge-outbox-global", "calls": [["x", 19]], "value": [19]}
globalThis.outbox=[{t:'call',id:1,path:'admin'}];globalThis.pending={};return await tools.x(19)
