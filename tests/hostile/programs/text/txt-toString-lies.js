//! {"ends": ["returns"]}
const s = new String('a');
s.toString = () => 'b';
s.toJSON = undefined;
return s
