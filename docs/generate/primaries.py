"""The primaries of ffind's expressions, each with its arguments and its description.

ffind's parser has tables of their names (`pcircle.tools.ffind.language.words`); a test compares
both. Primaries that `find` has as well have the same meaning.
"""

from __future__ import annotations

from typing import NamedTuple

_REGEX_TYPES = (
    "awk", "ed", "egrep", "emacs", "findutils-default", "gnu-awk", "grep", "posix-awk",
    "posix-basic", "posix-egrep", "posix-extended", "posix-minimal-basic", "sed",
)  # fmt: skip
_KINDS = ("b", "c", "d", "f", "l", "p", "s")
_TAKES = {"FILE": "file", "USER": "user", "GROUP": "group", "COMMAND": "command"}

_TABLE = """\
Operators
( ) | group
-not | true if the next primary is false, like !
-and, -a | both; the default between two primaries
-or, -o | either; the second only if the first is false
-exclude | neither evaluate nor enter entries that match the next primary
Options of the search
-P | never follow symbolic links (default)
-H | follow symbolic links given as PATH
-L, -follow | follow all symbolic links
-O | accepted and ignored: -O0 to -O3
-D WORD | accepted and ignored
-d, -depth | directories after their contents
-maxdepth N | at most N levels below each PATH
-mindepth N | not the first N levels
-mount, -xdev | stay on one file system
-files0-from FILE | read PATHs from FILE, NUL-terminated
-regextype TYPE | syntax of the regular expressions that follow
-daystart | measure the times that follow from the start of today
-ignore_readdir_race | entries that vanish during the search are not failures (default)
-noignore_readdir_race | entries that vanish during the search are failures
-warn | warn about misleading expressions (default)
-nowarn | do not warn
-noleaf | accepted and ignored
Names
-name PATTERN | name matches PATTERN
-iname PATTERN | like -name, ignoring case
-path PATTERN, -wholename PATTERN | path matches PATTERN
-ipath PATTERN, -iwholename PATTERN | like -path, ignoring case
-regex REGEX | path matches REGEX as a whole
-iregex REGEX | like -regex, ignoring case
-lname PATTERN | symbolic link whose target matches PATTERN
-ilname PATTERN | like -lname, ignoring case
Kinds and status
-type KINDS | kind is one of: b, c, d, f, l, p, s
-xtype KINDS | like -type, for the target of a symbolic link
-empty | file or directory that is empty
-size N[UNIT] | size in units of c, w, b, k, M, G, T, P, rounded up
-bytes SIZE | size in bytes, not rounded: +1G, -64k
-blocks N | blocks of 512 bytes on disk
-sparse | fewer blocks on disk than the size requires
-links N | number of hard links
-inum N | inode number
-samefile FILE | the same inode as FILE
-fstype TYPE | on a file system of this type
-perm MODE | mode is MODE; -MODE: all of its bits; /MODE: any
-user USER | owner, by name or number
-group GROUP | group, by name or number
-uid N | number of the owner
-gid N | number of the group
-nouser | the owner has no name
-nogroup | the group has no name
-readable | you may read it
-writable | you may write to it
-executable | you may execute or search it
-flags LETTERS | flags of chattr(1): exactly these; -: at least; /: any
-xattr | has an extended attribute
-xattrname NAME | has the extended attribute NAME
-acl | has an access control list
-capable | has capabilities
Times
-amin N | accessed N minutes ago
-cmin N | status changed N minutes ago
-mmin N | modified N minutes ago
-atime N | accessed N days ago
-ctime N | status changed N days ago
-mtime N | modified N days ago
-anewer FILE | accessed after FILE was modified
-cnewer FILE | status changed after FILE was modified
-newer FILE | modified after FILE
-newerXY FILE | time X after time Y of FILE; X: a, B, c, m; Y: the same or t, a date
-since T | modified after T: 30d (ago), 2026-11-30, @0, file:PATH
-until T | modified at or before T
-used N | accessed N days after its status changed
Lustre
-stripe-count N | number of stripes
-stripe-size SIZE | size of a stripe
-pool NAME | in the pool NAME
-ost N | has an object on this OST
-mdt N | inode on this MDT
-layout released | data only in the archive
Constants
-true | always
-false | never
Output
-print | write the path (default)
-print0 | write the path, NUL-terminated
-printf FORMAT | write FORMAT, as find does
-ls | write a line like ls -dils
-json | write a line of JSON
-csv | write a line of CSV
-fprint FILE | like -print, to FILE
-fprint0 FILE | like -print0, to FILE
-fprintf FILE FORMAT | like -printf, to FILE
-fls FILE | like -ls, to FILE
-count | at the end, write the number of entries
-du | at the end, write the bytes that they occupy on disk
-exists | write nothing; exit code 3 if this is never reached
Actions
-delete | remove the entry; implies -depth
-exec COMMAND | run COMMAND up to ';', or up to '{} +' for many entries at once
-execdir COMMAND | like -exec, in the directory of the entry
-prune | do not enter this directory
-limit N | stop after the N-th time
-quit | stop at once"""


class Primary(NamedTuple):
    """A primary: its names, its arguments, its description, and its `group`.

    `takes` is the type of the first argument, as in `docs.generate.reference.Option`, or "command";
    "choice" is one of `choices`.
    """

    flags: tuple[str, ...]
    metavars: tuple[str, ...]
    choices: tuple[str, ...]
    takes: str
    help: str
    group: str

    @property
    def invocation(self) -> str:
        """The names, each with its arguments: `-path PATTERN, -wholename PATTERN`."""
        behind = "".join(f" {metavar}" for metavar in self.metavars)
        return ", ".join(flag + behind for flag in self.flags)


def _read(table: str) -> tuple[Primary, ...]:
    found, group = [], ""
    for line in table.splitlines():
        names, bar, text = line.partition(" | ")
        if not bar:
            group = line
            continue
        words = [part.split() for part in names.split(", ")]
        metavars = tuple(words[0][1:])
        first = metavars[0] if metavars and names != "( )" else ""
        choices = {"TYPE": _REGEX_TYPES, "KINDS": _KINDS, "released": ("released",)}.get(first, ())
        if names.startswith("-fstype"):
            choices = ()
        takes = "choice" if choices else _TAKES.get(first, "")
        flags = ("(", ")") if names == "( )" else tuple(each[0] for each in words)
        found.append(Primary(flags, metavars if first else (), choices, takes, text, group))
    return tuple(found)


PRIMARIES = _read(_TABLE)
"""All primaries except -ok and -okdir, which are refused, and the punctuation `!` and `,`."""
