"""How many examples a property has that says nothing of it."""

from hypothesis import settings

from tests.support.helpers import draws

settings.register_profile("pairmill", max_examples=draws(100))
settings.load_profile("pairmill")
