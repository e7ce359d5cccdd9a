"""What the lab's commands do, apart from their options."""
