//! {"ends": ["throws"], "error_name": "TypeError"}
class E extends TypeError {}
throw new E('x')
