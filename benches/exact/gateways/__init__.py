"""The gateways of the cases, one file each."""

from .member import Contender, Member, Reload

__all__ = ["Contender", "Member", "Reload"]
