"""Method `phrases`: texts about phrases that many private rows have."""
