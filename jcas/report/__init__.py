"""Run folders -> one self-contained HTML file.

``collect`` reads a run folder into plain dataclasses, ``gallery`` packs its pictures, ``charts`` draws SVG, ``page``
fills a template and writes the file. Each kind of report is one module on top of these: ``training``,
``benchmark`` and ``audit``.
"""

from jcas.report.audit import build_audit_report, is_audit
from jcas.report.benchmark import build_benchmark_report, is_benchmark
from jcas.report.training import build_report

__all__ = ["build_audit_report", "build_benchmark_report", "build_report", "is_audit", "is_benchmark"]
