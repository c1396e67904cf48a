"""What every model promises, as tests: an adapter subclasses `ModelContract` and runs it whole.

class TestMyModel(ModelContract):
    keeps_deadline = False    # what it cannot do; all that is not said it can

    @asynccontextmanager
    async def open(self, far):    # a model, and `far` at the other end of its line
        async with my_server(lambda body: far.hear(body)) as server:
            yield MyModel(server.url)

    async def gone(self): ...     # until the other end has seen that nobody listens any more
"""

from __future__ import annotations

from cairn.testing.model_faults import FaultPromises
from cairn.testing.model_promises import Far, Says
from cairn.testing.model_replies import ReplyPromises

__all__ = ["Far", "ModelContract", "Says"]


class ModelContract(ReplyPromises, FaultPromises):
    """All promises of a model."""
