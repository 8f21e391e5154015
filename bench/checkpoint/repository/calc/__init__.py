"""A small package that is edited and tested at each step."""
