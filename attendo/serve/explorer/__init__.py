"""What the page of `attendo explore` asks for: one file a group of endpoints, with the calculations beside them."""
