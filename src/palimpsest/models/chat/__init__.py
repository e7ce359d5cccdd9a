"""Language models that follow instructions: at an endpoint, or on this machine."""
