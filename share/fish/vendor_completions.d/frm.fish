# fish completion of frm, made from its parser by python -m docs.generate: edit the help there.

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

complete -c frm -l help -d 'show all options'
complete -c frm -s h -d 'show the most commonly used options'
complete -c frm -s r -s R -l recursive -d 'remove directories and their contents'
complete -c frm -s f -l force -d 'ignore a PATH that does not exist'
complete -c frm -s d -l dir -d 'remove empty directories'
complete -c frm -s i -d 'refused, because frm never prompts; use --plan'
complete -c frm -s I -d 'refused, like -i'
complete -c frm -l keep-root -d 'empty each PATH, but keep PATH itself'
complete -c frm -l trash -d 'move each PATH into DIR, on the same file system' -x -a '(__fish_complete_directories)'
complete -c frm -l empty-trash -d 'remove the entries moved into DIR by --trash' -x -a '(__fish_complete_directories)'
complete -c frm -l empty-dirs -d 'remove only directories that are empty or become empty'
complete -c frm -l keep-times -d 'restore the times of remaining directories'
complete -c frm -l force-modes -d 'add u+rwx to directories where required'
complete -c frm -l cross-mounts -d 'enter other file systems and bind mounts'
complete -c frm -s x -l one-file-system -d 'stay on one file system (default)'
complete -c frm -l plan -d 'write a plan for --apply instead of removing' -r -F
complete -c frm -l apply -d 'remove the entries in a plan, unless they have changed' -r -F
complete -c frm -l max-delete -d 'remove nothing if more than N (or N%) would be removed' -x
complete -c frm -l bytes -d 'report the bytes freed (looks up each file)'
complete -c frm -l dry-run -d 'show what would be done (with -v: list the entries)'
complete -c frm -l exclude -d 'exclude entries that match GLOB' -x
complete -c frm -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c frm -l include -d 'include entries that match GLOB' -x
complete -c frm -l include-from -d 'read include patterns from FILE' -r -F
complete -c frm -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c frm -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c frm -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c frm -l older-than -d 'only entries that are not newer than T' -x
complete -c frm -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c frm -l min-size -d 'only files of SIZE or more' -x
complete -c frm -l max-size -d 'only files of SIZE or less' -x
complete -c frm -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c frm -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c frm -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c frm -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c frm -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c frm -l strict-operands -d 'require absolute operands without symbolic links'
complete -c frm -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c frm -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c frm -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c frm -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c frm -l ops-limit -d 'total limit on operations per second' -x
complete -c frm -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c frm -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c frm -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c frm -s q -l quiet -d 'report failures only'
complete -c frm -s v -l verbose -d 'list removed entries (-vv: also inter-process traffic)'
complete -c frm -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c frm -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c frm -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c frm -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c frm -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c frm -l syslog -d 'log a line to syslog at the end'
complete -c frm -l version -d 'show the version'
complete -c frm -l list-out -d 'write a list of the removed entries, for --files-from' -r -F
complete -c frm -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
