//! {"ends": ["syntax", "returns", "throws"]}
enum A { B }
return A.B
