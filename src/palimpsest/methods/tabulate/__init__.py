"""Method `tabulate`: rows of another variant with fields from differentially private tables beside their texts.

* `joint`: texts matched with rows of fields, by what noisy sums say of the texts of each value
"""
