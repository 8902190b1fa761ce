"""Find, rank and repair wrong labels: find -> score -> repair."""

from jcas.audit.loop import read_audit, write_dataset
from jcas.audit.posterior import Judgement, judge
from jcas.audit.streaming import audit

__all__ = ["Judgement", "audit", "judge", "read_audit", "write_dataset"]
