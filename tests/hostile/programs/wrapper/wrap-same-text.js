//! {"ends": ["syntax"], "calls": [], "console": []}
}); (async function(){});
(async function(){
