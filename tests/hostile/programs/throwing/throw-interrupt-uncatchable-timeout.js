//! {"ends": ["timeout"], "calls": [["never", 1]], "exec": {"ends": ["waits"]}}
try { await tools.never(1) } catch (e) { return 'caught' } finally { return 'finally' }
