"""The copy of a mirror: fcp's task with its own visitor and overwrite policy."""

from __future__ import annotations

from pcircle.ops.copy.tree.items import Notice
from pcircle.ops.copy.tree.journaled_copy import JournaledCopy
from pcircle.ops.copy.tree.task import CopyTask
from pcircle.tools.fmirror.work.extraneous import Surplus
from pcircle.tools.fmirror.work.itemize import LinkedRecords
from pcircle.tools.fmirror.work.listing import ListingTimes
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy
from pcircle.tools.fmirror.work.visitor import MirrorVisitor


class MirrorTask(CopyTask):
    """The work of one rank."""

    notice_type = Notice | Surplus | LinkedRecords | ListingTimes
    visitor_type = MirrorVisitor
    keeping = MirrorOverwritePolicy


class JournaledMirror(JournaledCopy):
    """The work of one rank in a mirror with a checkpoint."""

    notice_type = Notice | Surplus | LinkedRecords | ListingTimes
    visitor_type = MirrorVisitor
    keeping = MirrorOverwritePolicy
