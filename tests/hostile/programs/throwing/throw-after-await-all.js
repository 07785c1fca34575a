//! {"ends": ["tool-error"], "calls": [["fail", 1], ["fail", 2]]}
await Promise.all([tools.fail(1), tools.fail(2)])
