"""Hypothesis profiles: CAIRN_HYPOTHESIS_PROFILE=dev (50 examples, the default) or ci (300)."""

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=300, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("CAIRN_HYPOTHESIS_PROFILE", "dev"))
