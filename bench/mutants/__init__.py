"""Faults planted in the source one at a time, and the tests that must notice each."""
