# fish completion of fdiff, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fdiff -l help -d 'show all options'
complete -c fdiff -s h -d 'show the most commonly used options'
complete -c fdiff -s c -l contents -l checksum -d 'compare contents as well'
complete -c fdiff -l quick -d 'compare only kind, size and modification time'
complete -c fdiff -l fields -d 'fields to compare (see the manual), or default, or all' -x -a '(__pcircle_list kind size mtime atime ctime mode owner group links target content xattr acl holes flags stripe rdev default all)'
complete -c fdiff -l ignore -d 'fields not to compare' -x -a '(__pcircle_list kind size mtime atime ctime mode owner group links target content xattr acl holes flags stripe rdev default all)'
complete -c fdiff -l modify-window -d 'treat times that differ by at most T as equal' -x
complete -c fdiff -l ids -d 'compare owners by number (default) or name' -x -a 'numeric names'
complete -c fdiff -l one-sided -d 'ignore entries that exist only in B'
complete -c fdiff -l moved -d 'match moved files by size and time'
complete -c fdiff -l by-hash -d 'match moved files by content'
complete -c fdiff -l first -d 'stop at the first difference'
complete -c fdiff -l exclude -d 'exclude entries that match GLOB' -x
complete -c fdiff -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fdiff -l include -d 'include entries that match GLOB' -x
complete -c fdiff -l include-from -d 'read include patterns from FILE' -r -F
complete -c fdiff -l files-from -d 'only the paths below A listed in FILE (-: stdin)' -r -F
complete -c fdiff -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fdiff -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fdiff -l older-than -d 'only entries that are not newer than T' -x
complete -c fdiff -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fdiff -l min-size -d 'only files of SIZE or more' -x
complete -c fdiff -l max-size -d 'only files of SIZE or less' -x
complete -c fdiff -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fdiff -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fdiff -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fdiff -l match -d 'only entries whose path below A matches REGEX' -x
complete -c fdiff -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fdiff -s x -l one-file-system -d 'stay on one file system'
complete -c fdiff -s r -l recursive -d 'with --files-from, include directory contents'
complete -c fdiff -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fdiff -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fdiff -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fdiff -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fdiff -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fdiff -l op-timeout -d 'give up on entries if a file system does not respond in T' -x
complete -c fdiff -l open-noatime -d 'do not update access times when reading, if permitted'
complete -c fdiff -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fdiff -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fdiff -s q -l quiet -d 'report failures only'
complete -c fdiff -s v -l verbose -d 'report what was compared (-vv: also inter-process traffic)'
complete -c fdiff -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fdiff -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fdiff -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fdiff -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fdiff -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fdiff -l syslog -d 'log a line to syslog at the end'
complete -c fdiff -l version -d 'show the version'
complete -c fdiff -s i -l itemize -l itemize-changes -d 'also list the contents of directories on only one side'
complete -c fdiff -l format -d 'words (on a terminal), rsync\'s columns, or dcmp\'s counts' -x -a 'words rsync dcmp'
complete -c fdiff -s o -l output -d 'write entries that match a dcmp expression to FILE' -x
complete -c fdiff -l list-out -d 'write a list of the differing entries, for --files-from' -r -F
complete -c fdiff -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
