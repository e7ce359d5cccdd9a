"""Method `select`: public texts chosen by noisy class means."""
