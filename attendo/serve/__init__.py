"""HTTP and the browser page."""
