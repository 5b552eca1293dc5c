# fish completion of fls, made from its parser by python -m docs.generate: edit the help there.

function __pcircle_list -d 'Words, after the present words of a comma-separated list'
    set -l begun (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    set begun (string replace -r -- '[^,]*$' '' $begun)
    set -q begun[1]; or set begun ''
    printf '%s\n' $begun$argv
end

function __pcircle_owner -d 'A user, or a group after a colon'
    set -l begun (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    if string match -q -- '*:*' $begun
        printf '%s\n' (string replace -r -- ':.*' ':' $begun)(__fish_print_groups)
    else
        __fish_print_users
    end
end

complete -c fls -l help -d 'show this help (=short: the most common options)'
complete -c fls -s R -l recursive -d 'list subdirectories recursively'
complete -c fls -s d -l directory -d 'list directories themselves, not their contents'
complete -c fls -s a -l all -d 'include names that begin with a dot'
complete -c fls -s A -l almost-all -d 'like -a, but omit . and .. themselves'
complete -c fls -s l -d 'use the long format: mode, owner, size, time'
complete -c fls -s 1 -d 'list one name per line'
complete -c fls -s n -l numeric-uid-gid -d 'like -l, with numeric owners and groups'
complete -c fls -s g -d 'like -l, without the owner'
complete -c fls -s o -d 'like -l, without the group'
complete -c fls -s h -l human-readable -d 'show sizes such as 1.5K, 234M and 2.0G'
complete -c fls -s i -l inode -d 'show inode numbers'
complete -c fls -s s -l size -d 'show allocated blocks, in KiB'
complete -c fls -l time -d 'time to show and sort by: mtime, atime, ctime' -x -a 'mtime atime ctime'
complete -c fls -l time-style -d 'format of times: locale, full-iso, long-iso, iso, +FORMAT' -x -a 'full-iso long-iso iso locale'
complete -c fls -l full-time -d 'like -l, with nanoseconds and time zone'
complete -c fls -s F -l classify -d 'append one of */=@| to names'
complete -c fls -l color -d 'colour names: always, auto, never' -f -a 'always auto never'
complete -c fls -l hyperlink -d 'print names as hyperlinks: always, auto, never' -f -a 'always auto never'
complete -c fls -s Z -l context -d 'show security contexts'
complete -c fls -l acl -d 'show access control lists'
complete -c fls -l xattr -d 'show names of extended attributes'
complete -c fls -l total -d 'show totals of directories instead of entries'
complete -c fls -l sort -d 'sort keys: name, size, mtime ... (minus: descending)' -x -a '(__pcircle_list name size mtime atime ctime owner group kind none)'
complete -c fls -s S -d 'largest first'
complete -c fls -s t -d 'newest first'
complete -c fls -s U -d 'do not sort'
complete -c fls -s r -l reverse -d 'reverse the order'
complete -c fls -l group-directories-first -d 'list directories before files'
complete -c fls -l csv -d 'write one CSV row per entry (-: standard output)' -r -F
complete -c fls -l parquet -d 'write one Parquet row per entry (requires pyarrow)' -r -F
complete -c fls -l sum -d 'add the signature of each file, as printed by fsum'
complete -c fls -l exclude -d 'exclude entries that match GLOB' -x
complete -c fls -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fls -l include -d 'include entries that match GLOB' -x
complete -c fls -l include-from -d 'read include patterns from FILE' -r -F
complete -c fls -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fls -s 0 -l null -d 'end list entries and printed lines with NUL, not newline'
complete -c fls -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fls -l older-than -d 'only entries that are not newer than T' -x
complete -c fls -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fls -l min-size -d 'only files of SIZE or more' -x
complete -c fls -l max-size -d 'only files of SIZE or less' -x
complete -c fls -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fls -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fls -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fls -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fls -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fls -s x -l one-file-system -d 'stay on one file system'
complete -c fls -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fls -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fls -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fls -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fls -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fls -l op-timeout -d 'give up on entries if a file system does not respond in T' -x
complete -c fls -l ops-limit -d 'total limit on entries per second' -x
complete -c fls -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fls -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fls -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fls -s q -l quiet -d 'report failures only'
complete -c fls -s v -l verbose -d 'report what was done (-vv: also inter-process traffic)'
complete -c fls -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fls -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fls -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fls -l json -d 'write one JSON row per entry (-: standard output)' -r -F
complete -c fls -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fls -l syslog -d 'log a line to syslog at the end'
complete -c fls -l version -d 'show the version'
complete -c fls -l list-out -d 'write a list of the listed entries, for --files-from' -r -F
complete -c fls -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
