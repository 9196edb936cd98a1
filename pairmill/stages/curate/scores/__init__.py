"""What is measured of each row by itself."""
