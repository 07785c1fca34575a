"""Pages of the console: each module has the routes of one, as functions of one `Desk`."""
