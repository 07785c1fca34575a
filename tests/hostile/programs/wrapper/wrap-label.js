//! {"ends": ["syntax"], "calls": [], "console": []}
}); x: (async function(){
