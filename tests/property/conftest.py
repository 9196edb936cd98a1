"""How many examples a property has that says nothing of it; a busy machine may take long for one."""

from hypothesis import settings

from tests.support.helpers import draws

settings.register_profile("pairmill", max_examples=draws(100), deadline=None)
settings.load_profile("pairmill")
