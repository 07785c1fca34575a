//! {"ends": ["returns"], "value": 1, "calls": [["fail", 1]]}
tools.fail(1).catch(() => { throw new Error('in drain') });
return 1
