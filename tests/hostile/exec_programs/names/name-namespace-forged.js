//! {"ends": ["returns"], "value": "undefined"}
try { namespaces.calendar.events.raw = tools.admin } catch {}
try { namespaces.evil = {} } catch {}
try { Object.setPrototypeOf(namespaces.calendar.events, { admin: tools.admin }) } catch {}
return typeof namespaces.calendar.events.admin
