# fish completion of fchown, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fchown -l help -d 'show this help (=short: the most common options)'
complete -c fchown -s R -l recursive -d 'change directories and their contents'
complete -c fchown -l reference -d 'use the attributes of FILE' -r -F
complete -c fchown -l from -d 'change only entries with this owner and group' -x -a '(__pcircle_owner)'
complete -c fchown -l usermap -d 'map owners: FROM:TO,... as in rsync' -x
complete -c fchown -l groupmap -d 'map groups in the same way' -x
complete -c fchown -l acl -d 'modify access control lists like setfacl -m' -x
complete -c fchown -l acl-remove -d 'remove ACL entries like setfacl -x, or whole ACLs' -f
complete -c fchown -l default-acl -d 'modify default ACLs like setfacl -dm' -x
complete -c fchown -l keep-setid -d 'restore set-id bits after a change of owner'
complete -c fchown -l no-setid -d 'clear the set-id bits of all files'
complete -c fchown -l force -d 'make system calls even if nothing would change'
complete -c fchown -l undo -d 'save the previous attributes for --apply' -r -F
complete -c fchown -l apply -d 'restore the attributes saved by --undo' -r -F
complete -c fchown -l dry-run -d 'show what would be done (-c: list entries)'
complete -c fchown -s h -l no-dereference -d 'change links themselves, not their targets'
complete -c fchown -s H -d 'follow links given as PATH'
complete -c fchown -s L -d 'follow all links, including links in directories'
complete -c fchown -s P -d 'follow no links'
complete -c fchown -l no-preserve-root -d 'allow -R on /'
complete -c fchown -l preserve-root -d 'refuse -R on / (default)'
complete -c fchown -l exclude -d 'exclude entries that match GLOB' -x
complete -c fchown -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fchown -l include -d 'include entries that match GLOB' -x
complete -c fchown -l include-from -d 'read include patterns from FILE' -r -F
complete -c fchown -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fchown -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fchown -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fchown -l older-than -d 'only entries that are not newer than T' -x
complete -c fchown -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fchown -l min-size -d 'only files of SIZE or more' -x
complete -c fchown -l max-size -d 'only files of SIZE or less' -x
complete -c fchown -l of-owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fchown -l of-group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fchown -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fchown -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fchown -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fchown -s x -l one-file-system -d 'stay on one file system'
complete -c fchown -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fchown -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fchown -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fchown -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fchown -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fchown -l ops-limit -d 'total limit on operations per second' -x
complete -c fchown -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fchown -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fchown -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fchown -s q -l quiet -d 'report failures only'
complete -c fchown -s v -l verbose -d 'list all entries'
complete -c fchown -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fchown -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fchown -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fchown -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fchown -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fchown -l syslog -d 'log a line to syslog at the end'
complete -c fchown -l version -d 'show the version'
complete -c fchown -l list-out -d 'write a list of the changed entries, for --files-from' -r -F
complete -c fchown -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fchown -s c -l changes -d 'list changed entries'
complete -c fchown -s f -l silent -d 'omit messages about EPERM (given twice: do not exit with 1)'
complete -c fchown -n 'not string match -qv -- \'-*\' - (commandline -poc)[2..-1]' -f -a '(__pcircle_owner)'
