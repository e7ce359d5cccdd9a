"""The work of the lab's commands, without their options."""
