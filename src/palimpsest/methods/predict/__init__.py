"""Method `predict`: text from a language model that reads private records in its prompts."""
