"""What holds for every test: hypothesis times nothing, for a busy machine is no fault of what is tested."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
