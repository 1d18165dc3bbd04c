"""HTTP server and browser page."""
