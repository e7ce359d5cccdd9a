"""Membership attacks on a model beside shadow models."""

from palimpsest.audit.membership import MembershipAudit
from palimpsest.report.results import Metric
from palimpsest.report.sections.base import MembershipKind
from palimpsest_lab.settings import run_of

SHADOW = Metric("shadow_membership", MembershipAudit.from_json, lambda params: run_of(params).shadow_mia)
ATTACK = MembershipKind("S", SHADOW, "model beside shadow models", "Membership attacks on {} with shadow models")
