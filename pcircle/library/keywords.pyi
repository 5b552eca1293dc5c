"""The keyword arguments of the functions, generated from the options of the tools.

`python -m docs.generate` writes this module, which only type checkers and editors read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from pcircle.cli.progress import ProgressView
from pcircle.library import AnyPath
from pcircle.library.call import Cancel

class CallKeywords(TypedDict, total=False):
    """Keyword arguments that are not options."""

    cancel: Cancel | None
    """stops the job when set"""
    messages: Callable[[str], object] | None
    """receives each line that the command would print on standard error"""

class WalkKeywords(CallKeywords, total=False):
    """Keyword arguments of all functions that walk trees."""

    exclude: str | Sequence[str] | None
    """exclude entries that match GLOB"""
    exclude_from: AnyPath | Sequence[AnyPath] | None
    """read exclude patterns from FILE"""
    include: str | Sequence[str] | None
    """include entries that match GLOB"""
    include_from: AnyPath | Sequence[AnyPath] | None
    """read include patterns from FILE"""
    newer_than: str | float | None
    """only entries newer than T: 30d, 2026-11-30, @0, file:PATH"""
    older_than: str | float | None
    """only entries that are not newer than T"""
    by_time: Literal["mtime", "ctime", "atime", "btime"] | None
    """time that both filters use (default: mtime)"""
    min_size: str | float | None
    """only files of SIZE or more"""
    max_size: str | float | None
    """only files of SIZE or less"""
    kind: str | None
    """only entries of these kinds: f, d, l, p, s, b, c"""
    skip_offline: bool
    """skip offline files, whose data is on tape"""
    strict_operands: bool
    """require absolute operands without symbolic links"""
    insecure_links: bool
    """follow any symbolic link when opening a FILE argument"""
    jobs: str | float | None
    """number of processes (per rank under MPI; default: up to 8)"""
    transport: Literal["auto", "mpi", "local"] | None
    """use MPI or local processes (default: auto)"""
    threads: str | float | None
    """concurrent operations per process (default: adaptive)"""
    error_log: AnyPath | None
    """write a line of JSON for each failed entry"""

class BroadcastKeywords(CallKeywords, total=False):
    """Keyword arguments of `broadcast`."""

    check: bool
    """compare all nodes with SRC by signature"""
    remove: bool
    """remove entries named like SRC from DST on all nodes"""
    update: bool
    """update existing trees, sending only what differs"""
    force: bool
    """replace existing directories"""
    no_clobber: bool
    """refuse to run if a name exists on any node"""
    partial: bool
    """continue without nodes that fail"""
    fsync: bool
    """flush to disk before publishing"""
    record_dir: AnyPath | None
    """directory for records (default: ~/.local/state/fbcast)"""
    timeout: str | float | None
    """how long a node may take to respond (default: 60 s)"""
    jobs: str | float | None
    """processes, per rank under MPI (default: cores, up to 8)"""
    transport: Literal["auto", "mpi", "local"] | None
    """use MPI or local processes (default: auto)"""
    bwlimit: str | float | None
    """limit on bytes per second for each node"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class ChangeKeywords(WalkKeywords, total=False):
    """Keyword arguments of `change`."""

    recursive: bool
    """change directories and their contents"""
    mode: str | None
    """mode, instead of the operand MODE"""
    files: str | None
    """mode for everything except directories"""
    dirs: str | None
    """mode for directories"""
    owner: str | None
    """change the owner"""
    group: str | None
    """change the group"""
    reference: AnyPath | None
    """use the attributes of FILE"""
    from_: str | None
    """change only entries with this owner and group"""
    usermap: str | None
    """map owners: FROM:TO,... as in rsync"""
    groupmap: str | None
    """map groups in the same way"""
    acl: str | None
    """modify access control lists like setfacl -m"""
    acl_remove: str | bool | None
    """remove ACL entries like setfacl -x, or whole ACLs"""
    default_acl: str | None
    """modify default ACLs like setfacl -dm"""
    keep_setid: bool
    """restore set-id bits after a change of owner"""
    no_setid: bool
    """clear the set-id bits of all files"""
    force: bool
    """make system calls even if nothing would change"""
    undo: AnyPath | None
    """save the previous attributes for --apply"""
    apply: AnyPath | None
    """restore the attributes saved by --undo"""
    dry_run: bool
    """show what would be done (-c: list entries)"""
    no_dereference: bool
    """change links themselves, not their targets"""
    H: bool
    """follow links given as PATH"""
    L: bool
    """follow all links, including links in directories"""
    P: bool
    """follow no links"""
    no_preserve_root: bool
    """allow -R on /"""
    preserve_root: bool
    """refuse -R on / (default)"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    of_owner: str | None
    """only entries owned by these users (names or numbers)"""
    of_group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    one_file_system: bool
    """stay on one file system"""
    ops_limit: str | float | None
    """total limit on operations per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    list_out: AnyPath | None
    """write a list of the changed entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    changes: bool
    """list changed entries"""
    silent: bool
    """omit messages about EPERM (given twice: do not exit with 1)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class CheckKeywords(WalkKeywords, total=False):
    """Keyword arguments of `check`."""

    algorithm: str | None
    """digest: xxh128 (default), sha256, sha512, blake2b, blake3"""
    one_file_system: bool
    """stay on one file system"""
    quick: bool
    """with --check, skip files of unchanged size and time"""
    strict: bool
    """accepted as in sha256sum; malformed lines always fail"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    recursive: bool
    """with --files-from, include directory contents"""
    open_noatime: bool
    """do not update access times when reading, if permitted"""
    chunksize: str | float | None
    """chunk size of large files (default: adaptive)"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class CompareKeywords(WalkKeywords, total=False):
    """Keyword arguments of `compare`."""

    contents: bool
    """compare contents as well"""
    checksum: bool
    """compare contents as well"""
    quick: bool
    """compare only kind, size and modification time"""
    fields: str | None
    """fields to compare (see the manual), or default, or all"""
    ignore: str | None
    """fields not to compare"""
    modify_window: str | float | None
    """treat times that differ by at most T as equal"""
    ids: Literal["numeric", "names"] | None
    """compare owners by number (default) or name"""
    one_sided: bool
    """ignore entries that exist only in B"""
    moved: bool
    """match moved files by size and time"""
    by_hash: bool
    """match moved files by content"""
    first: bool
    """stop at the first difference"""
    files_from: AnyPath | None
    """only the paths below A listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below A matches REGEX"""
    one_file_system: bool
    """stay on one file system"""
    recursive: bool
    """with --files-from, include directory contents"""
    open_noatime: bool
    """do not update access times when reading, if permitted"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    itemize: bool
    """also list the contents of directories on only one side"""
    itemize_changes: bool
    """also list the contents of directories on only one side"""
    format: Literal["words", "rsync", "dcmp"] | None
    """words (on a terminal), rsync's columns, or dcmp's counts"""
    output: str | Sequence[str] | None
    """write entries that match a dcmp expression to FILE"""
    list_out: AnyPath | None
    """write a list of the differing entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class CopyKeywords(WalkKeywords, total=False):
    """Keyword arguments of `copy`."""

    recursive: bool
    """with --files-from, include directory contents"""
    no_target_directory: bool
    """copy to DST itself, even if it is a directory"""
    archive: bool
    """--preserve=all, and copy FIFOs, sockets and devices"""
    p: bool
    """like --preserve=mode,ownership,timestamps"""
    preserve: str | bool | None
    """attributes to keep (default: like -p): mode, ownership, timestamps, xattr, acl, links,
    stripe, all"""
    retry_from: AnyPath | None
    """copy only the failed entries logged in ERRORLOG"""
    no_dereference: bool
    """copy symbolic links as links (default)"""
    dereference: bool
    """follow all symbolic links"""
    H: bool
    """follow only symbolic links given as SRC"""
    one_file_system: bool
    """stay on one file system"""
    verify: bool
    """read each copy back from disk and compare"""
    dry_run: bool
    """show what would be done (with -v: list the entries)"""
    files_from: AnyPath | None
    """only the paths below SRC listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below SRC matches REGEX"""
    force: bool
    """with --inplace, replace files that cannot be opened"""
    no_clobber: bool
    """never overwrite; overrides -u and -f"""
    update: bool
    """overwrite only older files"""
    skip_same: bool
    """with -p, skip files with the same size and modification time"""
    inplace: bool
    """write into existing files (not atomic)"""
    fsync: bool
    """flush to disk before reporting success"""
    resume: bool
    """resume from the checkpoint, or start if there is none"""
    restart: bool
    """discard the checkpoint and start over"""
    checkpoint_interval: str | float | None
    """time between checkpoints (default: 60 s)"""
    checkpoint_dir: AnyPath | None
    """directory for the checkpoint (default: next to the copy)"""
    no_checkpoint: bool
    """do not write a checkpoint"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    chunksize: str | float | None
    """chunk size of large files (default: adaptive)"""
    reflink: Literal["auto", "always", "never"] | bool | None
    """clone files if possible (auto), always (also bare), or never"""
    sparse: Literal["auto", "always", "never"] | None
    """keep holes (auto), turn zeros into holes (always), or fill holes (never)"""
    stripe: str | None
    """Lustre layout of new files: COUNT, all, keep or default"""
    bwlimit: str | float | None
    """total limit on bytes per second"""
    ops_limit: str | float | None
    """total limit on metadata operations per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    open_noatime: bool
    """do not update access times when reading, if permitted"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    list_out: AnyPath | None
    """write a list of the copied entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    signature: str | bool | None
    """print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class EntriesKeywords(WalkKeywords, total=False):
    """Keyword arguments of `entries`."""

    recursive: bool
    """list subdirectories recursively"""
    directory: bool
    """list directories themselves, not their contents"""
    all: bool
    """include names that begin with a dot"""
    almost_all: bool
    """like -a, but omit . and .. themselves"""
    time: str | None
    """time to show and sort by: mtime, atime, ctime"""
    full_time: bool
    """like -l, with nanoseconds and time zone"""
    context: bool
    """show security contexts"""
    acl: bool
    """show access control lists"""
    xattr: bool
    """show names of extended attributes"""
    sort: str | None
    """sort keys: name, size, mtime ... (minus: descending)"""
    S: bool
    """largest first"""
    t: bool
    """newest first"""
    U: bool
    """do not sort"""
    reverse: bool
    """reverse the order"""
    group_directories_first: bool
    """list directories before files"""
    csv: AnyPath | None
    """write one CSV row per entry (-: standard output)"""
    parquet: AnyPath | None
    """write one Parquet row per entry (requires pyarrow)"""
    sum: bool
    """add the signature of each file, as printed by fsum"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries and printed lines with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    one_file_system: bool
    """stay on one file system"""
    ops_limit: str | float | None
    """total limit on entries per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    json: AnyPath | None
    """write one JSON row per entry (-: standard output)"""
    list_out: AnyPath | None
    """write a list of the listed entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""

class FindKeywords(CallKeywords, total=False):
    """Keyword arguments of `find`."""

    sort: str | bool | None
    """sort by KEYS, such as size,-mtime (default: path)"""
    top: str | float | None
    """print only the N largest, or the first N by --by"""
    by: str | None
    """sort keys of --top (default: size)"""
    stat: Literal["auto", "never"] | None
    """never: refuse tests that need a lookup (default: auto)"""
    in_: AnyPath | None
    """search a saved index, not the file system"""
    dry_run: bool
    """show what would be removed or executed"""
    plan: AnyPath | None
    """write a plan for --apply instead of removing"""
    apply: AnyPath | None
    """remove the entries in a plan, unless they have changed"""
    max_delete: str | float | None
    """remove nothing if more than N (or N%) would be removed"""
    exclude: str | Sequence[str] | None
    """exclude entries that match GLOB"""
    exclude_from: AnyPath | Sequence[AnyPath] | None
    """read exclude patterns from FILE"""
    include: str | Sequence[str] | None
    """include entries that match GLOB"""
    include_from: AnyPath | Sequence[AnyPath] | None
    """read include patterns from FILE"""
    skip_offline: bool
    """skip offline files, whose data is on tape"""
    null: bool
    """end list entries with NUL, not newline"""
    strict_operands: bool
    """require absolute operands without symbolic links"""
    insecure_links: bool
    """follow any symbolic link when opening a FILE argument"""
    jobs: str | float | None
    """number of processes (per rank under MPI; default: up to 8)"""
    transport: Literal["auto", "mpi", "local"] | None
    """use MPI or local processes (default: auto)"""
    threads: str | float | None
    """concurrent operations per process (default: adaptive)"""
    ops_limit: str | float | None
    """total limit on removals per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    error_log: AnyPath | None
    """write a line of JSON for each failed entry"""
    list_out: AnyPath | None
    """write a list of the entries found, for use with other tools"""
    json_lines: AnyPath | None
    """write a line of JSON for each removal"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""

class MirrorKeywords(WalkKeywords, total=False):
    """Keyword arguments of `mirror`."""

    checksum: bool
    """compare file contents, not times"""
    size_only: bool
    """treat files of the same size as unchanged"""
    ignore_times: bool
    """copy all files, even unchanged ones"""
    ctime: bool
    """compare contents of files whose ctime is after the last run"""
    modify_window: str | float | None
    """treat times that differ by at most T as equal"""
    changed: Literal["walk", "fs", "auto"] | None
    """find changes by walking A (default) or using the file system"""
    since_manifest: AnyPath | None
    """read fsum's manifest of B instead of B itself"""
    new_manifest: AnyPath | None
    """write the manifest of B for the next run"""
    changed_from: AnyPath | None
    """examine only the paths listed in FILE (-: stdin)"""
    full_every: str | float | None
    """examine everything if the last full run is older than T"""
    update: bool
    """skip files that are newer in B"""
    existing: bool
    """skip creating new entries in B"""
    ignore_existing: bool
    """skip updating existing entries in B"""
    prune_empty_dirs: bool
    """skip directories that contain no files to copy"""
    link_dest: AnyPath | Sequence[AnyPath] | None
    """hard-link unchanged entries from DIR (repeatable)"""
    compare_dest: AnyPath | Sequence[AnyPath] | None
    """skip entries that are unchanged in DIR (repeatable)"""
    copy_dest: AnyPath | Sequence[AnyPath] | None
    """copy contents from DIR if they are the same (repeatable)"""
    reflink_dest: AnyPath | Sequence[AnyPath] | None
    """like --copy-dest, but share blocks with DIR (repeatable)"""
    moved: bool
    """rename entries in B that were moved in A"""
    archive: bool
    """keep everything (default)"""
    preserve: str | bool | None
    """attributes to keep (default: all): mode, ownership, timestamps, xattr, acl, links, stripe,
    all"""
    one_file_system: bool
    """stay on one file system"""
    verify: bool
    """read each copy back from disk and compare"""
    fsync: bool
    """flush to disk before reporting success"""
    chown: str | None
    """set the owner and group of all entries"""
    chmod: str | Sequence[str] | None
    """change modes as in rsync: D2775,Fo-w"""
    usermap: str | None
    """map users, also in access control lists"""
    groupmap: str | None
    """map groups, also in access control lists"""
    numeric_ids: bool
    """keep numeric user and group IDs (default)"""
    delete: Literal["after", "before", "during"] | bool | None
    """delete entries that exist only in B: at the end (default; after or before) or during"""
    delete_excluded: bool
    """delete excluded entries as well"""
    protect: str | Sequence[str] | None
    """never delete entries that match GLOB"""
    max_delete: str | float | None
    """delete nothing if more than N (or N%) would be deleted"""
    ignore_errors: bool
    """delete even if part of A could not be read"""
    allow_empty: bool
    """allow A to be empty (normally refused)"""
    allow_foreign: bool
    """allow a source other than the one used by the last run"""
    allow_moved: bool
    """allow deletions after files were moved from A to B"""
    remove_source_files: bool
    """remove files from A after their copies are verified"""
    move: bool
    """like --remove-source-files, and remove empty directories"""
    backup_dir: AnyPath | None
    """move replaced and deleted entries into DIR"""
    snapshot: str | bool | None
    """create B/NAME (default: the time), linking unchanged files"""
    keep: str | None
    """snapshots to retain: 7d,4w,12m"""
    state_dir: AnyPath | None
    """directory for saved state (default: next to B)"""
    files_from: AnyPath | None
    """only the paths below A listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below A matches REGEX"""
    resume: bool
    """resume from the checkpoint, or start if there is none"""
    restart: bool
    """discard the checkpoint and start over"""
    checkpoint_interval: str | float | None
    """time between checkpoints (default: 60 s)"""
    checkpoint_dir: AnyPath | None
    """directory for the checkpoint (default: next to the copy)"""
    no_checkpoint: bool
    """do not write a checkpoint"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    chunksize: str | float | None
    """chunk size of large files (default: adaptive)"""
    reflink: Literal["auto", "always", "never"] | bool | None
    """clone files if possible (auto), always (also bare), or never"""
    sparse: Literal["auto", "always", "never"] | None
    """keep holes (auto), turn zeros into holes (always), or fill holes (never)"""
    stripe: str | None
    """Lustre layout of new files: COUNT, all, keep or default"""
    bwlimit: str | float | None
    """total limit on bytes per second"""
    ops_limit: str | float | None
    """total limit on metadata operations per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    open_noatime: bool
    """do not update access times when reading, if permitted"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    dry_run: bool
    """show what would be done (with -v: list the entries)"""
    plan: AnyPath | None
    """write a plan for --apply instead of changing B"""
    apply: AnyPath | None
    """carry out a plan, skipping entries that have changed"""
    itemize: bool
    """list changes in the format of rsync -i"""
    list_out: AnyPath | None
    """write a list of the copied entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    signature: str | bool | None
    """print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class ProfileKeywords(WalkKeywords, total=False):
    """Keyword arguments of `profile`."""

    bins: str | None
    """edges of the size histogram: 4k,1M,1G, log2 or pow4"""
    by: str | Sequence[str] | None
    """group by age, owner, group, ext, depth, dirsize"""
    dirbins: str | None
    """group directories by entry count, with edges such as 10,100"""
    top: str | float | None
    """list the N largest, newest and oldest entries"""
    depth: str | float | None
    """show directories N levels deep, largest first"""
    min_depth: str | float | None
    """hide directories less than N levels deep"""
    blocks: str | None
    """estimate space with blocks of each SIZE or SIZE/SUBBLOCK"""
    data_in_inode: str | float | None
    """assume that files up to SIZE are stored in inodes"""
    sparse: bool
    """report sparse files and space saved by compression"""
    stripe: bool
    """report Lustre layouts"""
    compress: str | bool | None
    """estimate compression from SAMPLE pieces (default: 1024)"""
    one_file_system: bool
    """stay on one file system"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    save: AnyPath | None
    """save the profile for --merge and --diff"""
    entries: bool
    """with --save, also save an index of all entries"""
    html: AnyPath | None
    """write a self-contained page with charts and a treemap"""
    list_out: str | Sequence[str] | None
    """list sparse, stripe, compress or special files in FILE"""
    plot: AnyPath | None
    """write a plot as .png, .svg or .pdf (requires matplotlib)"""
    csv: AnyPath | None
    """write the tables as CSV files to DIR"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class RemoveKeywords(WalkKeywords, total=False):
    """Keyword arguments of `remove`."""

    recursive: bool
    """remove directories and their contents"""
    force: bool
    """ignore a PATH that does not exist"""
    dir: bool
    """remove empty directories"""
    keep_root: bool
    """empty each PATH, but keep PATH itself"""
    trash: AnyPath | None
    """move each PATH into DIR, on the same file system"""
    empty_trash: AnyPath | None
    """remove the entries moved into DIR by --trash"""
    empty_dirs: bool
    """remove only directories that are empty or become empty"""
    keep_times: bool
    """restore the times of remaining directories"""
    force_modes: bool
    """add u+rwx to directories where required"""
    cross_mounts: bool
    """enter other file systems and bind mounts"""
    one_file_system: bool
    """stay on one file system (default)"""
    plan: AnyPath | None
    """write a plan for --apply instead of removing"""
    apply: AnyPath | None
    """remove the entries in a plan, unless they have changed"""
    max_delete: str | float | None
    """remove nothing if more than N (or N%) would be removed"""
    bytes: bool
    """report the bytes freed (looks up each file)"""
    dry_run: bool
    """show what would be done (with -v: list the entries)"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    ops_limit: str | float | None
    """total limit on operations per second"""
    polite: str | float | bool | None
    """be busy at most LEVEL% of the time (default: 50)"""
    stop_after: str | float | None
    """stop cleanly after T (exit code 4)"""
    stop_at: str | None
    """stop cleanly at TIME: 18:30 or 2026-11-30T18:30"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    list_out: AnyPath | None
    """write a list of the removed entries, for --files-from"""
    json_lines: AnyPath | None
    """write a line of JSON for each action (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""

class SignKeywords(WalkKeywords, total=False):
    """Keyword arguments of `sign`."""

    algorithm: str | None
    """digest: xxh128 (default), sha256, sha512, blake2b, blake3"""
    format: Literal["pcsig", "coreutils"] | None
    """pcsig, or coreutils: one line per file, like sha256sum"""
    output: AnyPath | None
    """also write a manifest of all entries"""
    checksums: str | None
    """with -o, also record the checksums that --export needs"""
    force: bool
    """with -o, replace an existing file"""
    one_file_system: bool
    """stay on one file system"""
    update: AnyPath | None
    """update MANIFEST, reading only changed files"""
    files_from: AnyPath | None
    """only the paths below PATH listed in FILE (-: stdin)"""
    null: bool
    """end list entries with NUL, not newline"""
    owner: str | None
    """only entries owned by these users (names or numbers)"""
    group: str | None
    """only entries with these groups (names or numbers)"""
    match: str | Sequence[str] | None
    """only entries whose path below PATH matches REGEX"""
    recursive: bool
    """with --files-from, include directory contents"""
    open_noatime: bool
    """do not update access times when reading, if permitted"""
    chunksize: str | float | None
    """chunk size of large files (default: adaptive)"""
    json: AnyPath | None
    """write the result as JSON (-: standard output)"""
    progress: Callable[[ProgressView], object] | None
    """receives views of the running job"""
    stdout: Callable[[bytes], object] | None
    """receives what the command would print as its result"""
