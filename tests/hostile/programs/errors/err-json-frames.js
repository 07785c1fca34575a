//! {"ends": ["throws"], "error_name": "SyntaxError"}
const error = new SyntaxError("s");
error.stack = ("    at <input>:1:1\n    at parse (native)\n").repeat(20000) + "    at <input>:" + "9".repeat(5000) + ":1";
throw error;
