"""Definitions in plain and slow Python that the product is compared with."""
