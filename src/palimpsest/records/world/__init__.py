"""The invented world of the embedded data set."""

CUSTOMER = "customer"  # the column that names a ticket's author
