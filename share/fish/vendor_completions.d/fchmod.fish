# fish completion of fchmod, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fchmod -l help -d 'show this help (=short: the most common options)'
complete -c fchmod -s R -l recursive -d 'change directories and their contents'
complete -c fchmod -l mode -d 'mode, instead of the operand MODE' -x
complete -c fchmod -l files -d 'mode for everything except directories' -x
complete -c fchmod -l dirs -d 'mode for directories' -x
complete -c fchmod -l owner -d 'change the owner' -x -a '(__fish_print_users)'
complete -c fchmod -l group -d 'change the group' -x -a '(__fish_print_groups)'
complete -c fchmod -l reference -d 'use the attributes of FILE' -r -F
complete -c fchmod -l from -d 'change only entries with this owner and group' -x -a '(__pcircle_owner)'
complete -c fchmod -l usermap -d 'map owners: FROM:TO,... as in rsync' -x
complete -c fchmod -l groupmap -d 'map groups in the same way' -x
complete -c fchmod -l acl -d 'modify access control lists like setfacl -m' -x
complete -c fchmod -l acl-remove -d 'remove ACL entries like setfacl -x, or whole ACLs' -f
complete -c fchmod -l default-acl -d 'modify default ACLs like setfacl -dm' -x
complete -c fchmod -l keep-setid -d 'restore set-id bits after a change of owner'
complete -c fchmod -l no-setid -d 'clear the set-id bits of all files'
complete -c fchmod -l force -d 'make system calls even if nothing would change'
complete -c fchmod -l undo -d 'save the previous attributes for --apply' -r -F
complete -c fchmod -l apply -d 'restore the attributes saved by --undo' -r -F
complete -c fchmod -l dry-run -d 'show what would be done (-c: list entries)'
complete -c fchmod -s h -l no-dereference -d 'change links themselves, not their targets'
complete -c fchmod -s H -d 'follow links given as PATH'
complete -c fchmod -s L -d 'follow all links, including links in directories'
complete -c fchmod -s P -d 'follow no links'
complete -c fchmod -l no-preserve-root -d 'allow -R on /'
complete -c fchmod -l preserve-root -d 'refuse -R on / (default)'
complete -c fchmod -l exclude -d 'exclude entries that match GLOB' -x
complete -c fchmod -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fchmod -l include -d 'include entries that match GLOB' -x
complete -c fchmod -l include-from -d 'read include patterns from FILE' -r -F
complete -c fchmod -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fchmod -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fchmod -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fchmod -l older-than -d 'only entries that are not newer than T' -x
complete -c fchmod -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fchmod -l min-size -d 'only files of SIZE or more' -x
complete -c fchmod -l max-size -d 'only files of SIZE or less' -x
complete -c fchmod -l of-owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fchmod -l of-group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fchmod -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fchmod -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fchmod -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fchmod -s x -l one-file-system -d 'stay on one file system'
complete -c fchmod -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fchmod -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fchmod -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fchmod -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fchmod -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fchmod -l ops-limit -d 'total limit on operations per second' -x
complete -c fchmod -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fchmod -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fchmod -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fchmod -s q -l quiet -d 'report failures only'
complete -c fchmod -s v -l verbose -d 'list all entries'
complete -c fchmod -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fchmod -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fchmod -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fchmod -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fchmod -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fchmod -l syslog -d 'log a line to syslog at the end'
complete -c fchmod -l version -d 'show the version'
complete -c fchmod -l list-out -d 'write a list of the changed entries, for --files-from' -r -F
complete -c fchmod -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fchmod -s c -l changes -d 'list changed entries'
complete -c fchmod -s f -l silent -d 'omit messages about EPERM (given twice: do not exit with 1)'
complete -c fchmod -n 'not string match -qv -- \'-*\' - (commandline -poc)[2..-1]' -f
