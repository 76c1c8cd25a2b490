"""The programs that are measured, one file each: how each is told to do a job."""

from .gateway import EXACT, OPEN, SHUT, Gateway, Quota, Site, Store

__all__ = ["EXACT", "OPEN", "SHUT", "Gateway", "Quota", "Site", "Store"]
