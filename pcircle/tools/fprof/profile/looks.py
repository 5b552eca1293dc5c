"""Examinations of files that some runs need: holes, layouts, and pieces to compress."""

from __future__ import annotations

from collections.abc import Iterable

from pcircle.fs.data import Recalling, Recalls
from pcircle.tools.fprof.profile.collect import FileBatch, Tell
from pcircle.tools.fprof.profile.inspecting import Layouts, find_holes
from pcircle.tools.fprof.profile.model import Profile
from pcircle.tools.fprof.profile.sampling import Sampler


def _nobody(*found: object) -> None:
    """Ignore a file, because no list was requested."""


class Looks:
    """The findings of a rank that are not yet in its profile."""

    def __init__(
        self, facets: Iterable[str], pieces: int, counts: Recalling, tell: Tell | None = None
    ) -> None:
        """Make empty findings. Each file with a finding is passed to `tell`."""
        self._wanted = frozenset(facets)
        self._tell: Tell = tell or _nobody
        self._layouts = Layouts()
        self.recalls = Recalls(counts)
        self._sampler = Sampler(pieces, self.recalls)

    def look(self, directory_fd: int, files: FileBatch, profile: Profile) -> None:
        """Examine files of a directory."""
        if "sparse" in self._wanted:
            find_holes(directory_fd, files, profile, self._tell)
        if "stripe" in self._wanted:
            self._layouts.look(directory_fd, files, self._tell)
        if "compress" in self._wanted:
            self._sampler.look(directory_fd, files, self._tell)

    def end(self, profile: Profile, pieces: int) -> None:
        """Add the layouts, and the compression of `pieces` pieces, to a profile."""
        layouts = self._layouts.found
        layouts.cut()
        profile.stripes, profile.other_stripes = layouts.tallies, layouts.other
        profile.sampled, profile.sample = pieces, self._sampler.sample()
