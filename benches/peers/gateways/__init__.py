"""The gateways that are measured, one file each: their configuration and command."""

from .gateway import EXACT, OPEN, SHUT, Gateway, Place, Quota, Site, Store

__all__ = ["EXACT", "OPEN", "SHUT", "Gateway", "Place", "Quota", "Site", "Store"]
