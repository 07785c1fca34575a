//! {"ends": ["detached"], "calls": [["y", 2], ["x", 1]], "exec": {"ends": ["returns"]}}
return await tools.x({ toJSON() { tools.y(2); return 1 } })
