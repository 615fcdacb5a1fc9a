"""What aiolimit is measured against."""
