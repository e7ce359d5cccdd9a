"""The lab's measurements: pure functions, separate from the page that shows them."""
