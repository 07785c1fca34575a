//! {"ends": ["tool-error"], "calls": [["fail", 1]]}
try { await tools.fail(1) } catch (e) { e.message = 'forged'; e.name = 'SyntaxError'; e.code = 'X'; throw e }
