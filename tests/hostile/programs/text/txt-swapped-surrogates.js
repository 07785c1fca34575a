//! {"ends": ["returns"], "value": "\ufffd\ufffd"}
return '\ude00\ud83d'
