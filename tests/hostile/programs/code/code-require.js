//! {"ends": ["syntax", "throws"]}
return require('fs')
