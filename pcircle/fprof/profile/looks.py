"""The looks into files that some runs want: at holes, layouts, and pieces to compress."""

from __future__ import annotations

from collections.abc import Iterable

from pcircle.fprof.profile.collect import Files, Tell
from pcircle.fprof.profile.inspecting import Layouts, find_holes
from pcircle.fprof.profile.model import Profile
from pcircle.fprof.profile.sampling import Sampler
from pcircle.fs.data import Recalling, Recalls


def _nobody(*found: object) -> None:
    """Nobody wants a list."""


class Looks:
    """What a rank has looked at, as far as it is not in the profile at once."""

    def __init__(
        self, facets: Iterable[str], pieces: int, counts: Recalling, tell: Tell | None = None
    ) -> None:
        """`tell` is told of each file in which something was found."""
        self._wanted = frozenset(facets)
        self._tell: Tell = tell or _nobody
        self._layouts = Layouts()
        self.recalls = Recalls(counts)
        self._sampler = Sampler(pieces, self.recalls)

    def look(self, directory_fd: int, files: Files, profile: Profile) -> None:
        """Look into files of a directory."""
        if "sparse" in self._wanted:
            find_holes(directory_fd, files, profile, self._tell)
        if "stripe" in self._wanted:
            self._layouts.look(directory_fd, files, self._tell)
        if "compress" in self._wanted:
            self._sampler.look(directory_fd, files, self._tell)

    def end(self, profile: Profile, pieces: int) -> None:
        """Put the layouts, and what was compressed of so many pieces, into a profile."""
        layouts = self._layouts.found
        layouts.cut()
        profile.stripes, profile.other_stripes = layouts.tallies, layouts.other
        profile.sampled, profile.sample = pieces, self._sampler.sample()
