//! {"ends": ["syntax"], "calls": [], "console": []}
`}); tools.admin(1); (async function(){
