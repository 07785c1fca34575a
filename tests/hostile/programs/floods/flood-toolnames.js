//! {"ends": ["throws"], "sample": "flood-toolnames", "exec": {"ends": ["returns"]}}
for(let i=0;i<1e6;i++)tools['t'+i]
