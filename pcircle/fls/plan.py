"""What is to be listed and how, decided once on rank 0, and what ranks tell of it."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

from pcircle.tool.actions import Wanted
from pcircle.tool.trees import TreeCounters, TreePlan


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of an entry, and how.

    `shape` is ``lines``, ``json`` (rows), ``csv`` or ``total``. `hidden` names are shown with 1,
    and ``.`` and ``..`` with 2. Names are shown in `columns` of a line of so many, 0: one a line;
    `escaped` where people read them. `colors` are as in LS_COLORS, `host` is that of links to
    files; both are empty where there are none.
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
        """Whether programs read it."""
        return self.shape in ("json", "csv")

    @property
    def follows(self) -> bool:
        """Whether what links lead to is looked at: for colours, if they tell of it."""
        words = self.colors.split(":")
        return (
            self.classify
            or any(word[:3] in ("or=", "mi=") for word in words)
            or ("ln=target" in words)
        )

    @property
    def is_alike(self) -> bool:
        """Whether a file's line needs nothing but its name and its status."""
        return not (self.acl or self.xattr or self.context or self.host)

    @property
    def has_total(self) -> bool:
        """Whether a directory's blocks are told."""
        return self.long or self.blocks


class ListPlan(TreePlan, frozen=True, kw_only=True):
    """What is listed. `keys` are what entries are sorted by, each with whether it descends; none:
    as they are found. Where directories have headings it is `headed`; sums are told of those in
    PATHs as well if it is `deep`. `directories` are PATHs beside others that are none. `acts` is
    what is reported of each entry, and the `ranks` have equal shares of `operations_per_s`.
    """

    form: Form
    recursive: bool = False
    deep: bool = False
    keys: tuple[tuple[str, bool], ...] = (("name", False),)
    directories_first: bool = False
    headed: bool = False
    directories: tuple[bytes, ...] = ()
    acts: Wanted = Wanted()
    ranks: int = 1
    operations_per_s: float | None = None

    @property
    def looks_up(self) -> bool:
        """Whether more of an entry is wanted than its name, and whether it is a directory."""
        form = self.form
        asked = form.has_total or form.inode or form.classify or form.colors or form.acl
        others = (
            form.host
            or form.xattr
            or form.context
            or form.shape != "lines"
            or self.acts.lines
            or self.directories_first
        )
        return bool(asked or others) or any(key != "name" for key, _ in self.keys)


class Records(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Some records for rank 0: see `pcircle.fls.records`."""

    packed: tuple[bytes, ...]


class Counters(TreeCounters):
    """Counts of entries that were listed."""
