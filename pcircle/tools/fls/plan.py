"""The plan of a listing, decided on rank 0, and the notices of ranks."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.tree_task import TreeCounters, TreePlan


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and the format of entries.

    `shape` is ``lines``, ``json`` (rows), ``csv`` or ``total``. `hidden` includes dot files with 1,
    and ``.`` and ``..`` with 2. `columns` is the width of lines with several names, or 0 for one
    name per line. Names are `escaped` for terminals. `colors` is as in LS_COLORS, and `host` the
    host of links to files; both may be empty.
    """

    shape: str = "lines"
    long: bool = False
    inode: bool = False
    blocks: bool = False
    human: bool = False
    numeric: bool = False
    owner: bool = True
    group: bool = True
    time: str = "mtime"
    style: str = "full-iso"
    classify: bool = False
    colors: str = ""
    host: str = ""
    context: bool = False
    acl: bool = False
    xattr: bool = False
    digest: bool = False
    hidden: int = 0
    columns: int = 0
    escaped: bool = False
    end: bytes = b"\n"

    @property
    def is_rows(self) -> bool:
        """Return whether the output is for programs."""
        return self.shape in ("json", "csv")

    @property
    def follows(self) -> bool:
        """Return whether link targets are looked up for their colours."""
        words = self.colors.split(":")
        return (
            self.classify
            or any(word[:3] in ("or=", "mi=") for word in words)
            or ("ln=target" in words)
        )

    @property
    def is_alike(self) -> bool:
        """Return whether a file's line needs only its name and status."""
        return not (self.acl or self.xattr or self.context or self.host)

    @property
    def has_total(self) -> bool:
        """Return whether the output has totals of directories' blocks."""
        return self.long or self.blocks


class ListPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a listing.

    `keys` are the sort fields, each with a flag for descending order. Without keys, entries are
    printed in the order in which they are found. Directories are `headed` by their paths. With
    `deep`, totals include subdirectories of PATHs. `directories` are PATHs that are listed together
    with files. `acts` is the requested output of actions, and the `ranks` have equal shares of
    `operations_per_s`.
    """

    form: Form
    recursive: bool = False
    deep: bool = False
    keys: tuple[tuple[str, bool], ...] = (("name", False),)
    directories_first: bool = False
    headed: bool = False
    directories: tuple[bytes, ...] = ()
    acts: ActionOutput = ActionOutput()
    ranks: int = 1
    operations_per_s: float | None = None

    @property
    def looks_up(self) -> bool:
        """Return whether entries must be looked up."""
        form = self.form
        asked = form.has_total or form.inode or form.classify or form.colors or form.acl
        options = (
            form.host
            or form.xattr
            or form.context
            or form.shape != "lines"
            or self.acts.lines
            or self.directories_first
        )
        return bool(asked or options) or any(key != "name" for key, _ in self.keys)


class ListRecords(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Records for rank 0; see `pcircle.tools.fls.printer`."""

    packed: tuple[bytes, ...]


class ListCounters(TreeCounters):
    """The counters of a listing."""
