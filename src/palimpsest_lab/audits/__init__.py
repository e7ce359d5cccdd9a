"""What the lab measures: pure functions, apart from the page that shows it."""
