"""What the audit page says of the lab's audits."""
