"""What the tests of models share: a real model file, and a real server that runs it."""

from tests.models.llama import llama_url, smollm2_file

__all__ = ["llama_url", "smollm2_file"]
