//! {"ends": ["syntax"]}
return {}.#a
