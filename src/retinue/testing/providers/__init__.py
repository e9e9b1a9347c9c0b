"""What every provider of children must do, as checks that any test runner can run: for ours and for yours."""

from retinue.testing.providers.continuable import CONTINUABLE_CHECKS
from retinue.testing.providers.one_shot import ONE_SHOT_CHECKS
from retinue.testing.providers.world import ANSWER, Behaviour, Check, OpenWorld, World, passes

__all__ = ["ANSWER", "CONTINUABLE_CHECKS", "ONE_SHOT_CHECKS", "Behaviour", "Check", "OpenWorld", "World", "passes"]
