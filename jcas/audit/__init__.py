"""Find, rank and repair wrong labels: find -> score -> repair."""

from jcas.audit.loop import check_dataset_request, read_audit, write_dataset
from jcas.audit.posterior import Judgement, judge
from jcas.audit.streaming import audit

__all__ = ["Judgement", "audit", "check_dataset_request", "judge", "read_audit", "write_dataset"]
