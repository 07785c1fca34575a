//! {"ends": ["throws"], "sample": "flood-toolnames"}
for(let i=0;i<1e6;i++)tools['t'+i]
