//! {"ends": ["detached", "timeout"], "sample": "flood-calls", "timeout_ms": 1500}
for(let i=0;i<1e6;i++)tools.x(i)
