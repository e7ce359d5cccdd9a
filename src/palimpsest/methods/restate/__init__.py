"""Method `restate`: rows of another method with the statements that many private rows make."""
