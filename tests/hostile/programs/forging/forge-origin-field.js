//! {"ends": ["throws"], "error_name": "a"}
throw { name: 'a', message: 'm', origin: 'syntax', request: 1, limit: 'max_bridge_requests' }
