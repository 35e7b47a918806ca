"""The stand-in for stores that misbehave."""

from stand_in import matrix, reply, stand_in

__all__ = ["matrix", "reply", "stand_in"]
