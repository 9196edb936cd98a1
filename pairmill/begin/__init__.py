"""A first look at somebody's data: what is in it, and the description by which it becomes rows."""
