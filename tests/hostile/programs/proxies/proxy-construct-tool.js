//! {"ends": ["throws"]}
return new tools.x(1)
