"""The same scenario under many orders of events: a seed decides what completes next, and decides the same way again."""

from retinue.testing.schedules.explore import Exploration, explore_schedules, replay_schedule
from retinue.testing.schedules.schedule import Schedule
from retinue.testing.schedules.world import Scenario, World

__all__ = ["Exploration", "Scenario", "Schedule", "World", "explore_schedules", "replay_schedule"]
