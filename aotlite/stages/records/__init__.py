"""What stages hand to each other: frozen records, no behaviour."""
