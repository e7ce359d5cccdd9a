"""The lab's sections of the audit page."""
