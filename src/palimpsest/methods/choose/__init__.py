"""Method `choose`: the variant whose rows teach a classifier most."""
