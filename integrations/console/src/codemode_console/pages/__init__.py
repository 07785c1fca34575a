"""Pages of the console: each module returns the routes of one."""
