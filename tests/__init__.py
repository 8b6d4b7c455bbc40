from hypothesis import settings

# Machines are noisy: how long an example takes says nothing about its law.
settings.register_profile("corgi2", deadline=None)
settings.load_profile("corgi2")
