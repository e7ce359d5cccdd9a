"""Method `tabulate`: rows of another variant with fields from differentially private tables beside their texts."""
