//! {"ends": ["detached"], "calls": []}
return [tools.x(1), tools.y(2)]
