"""What callers see while the server is slow, wrong or gone, and after."""
