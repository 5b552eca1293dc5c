# fish completion of fchgrp, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fchgrp -l help -d 'show this help (=short: the most common options)'
complete -c fchgrp -s R -l recursive -d 'change directories and their contents'
complete -c fchgrp -l reference -d 'use the attributes of FILE' -r -F
complete -c fchgrp -l from -d 'change only entries with this owner and group' -x -a '(__pcircle_owner)'
complete -c fchgrp -l usermap -d 'map owners: FROM:TO,... as in rsync' -x
complete -c fchgrp -l groupmap -d 'map groups in the same way' -x
complete -c fchgrp -l acl -d 'modify access control lists like setfacl -m' -x
complete -c fchgrp -l acl-remove -d 'remove ACL entries like setfacl -x, or whole ACLs' -f
complete -c fchgrp -l default-acl -d 'modify default ACLs like setfacl -dm' -x
complete -c fchgrp -l keep-setid -d 'restore set-id bits after a change of owner'
complete -c fchgrp -l no-setid -d 'clear the set-id bits of all files'
complete -c fchgrp -l force -d 'make system calls even if nothing would change'
complete -c fchgrp -l undo -d 'save the previous attributes for --apply' -r -F
complete -c fchgrp -l apply -d 'restore the attributes saved by --undo' -r -F
complete -c fchgrp -l dry-run -d 'show what would be done (-c: list entries)'
complete -c fchgrp -s h -l no-dereference -d 'change links themselves, not their targets'
complete -c fchgrp -s H -d 'follow links given as PATH'
complete -c fchgrp -s L -d 'follow all links, including links in directories'
complete -c fchgrp -s P -d 'follow no links'
complete -c fchgrp -l no-preserve-root -d 'allow -R on /'
complete -c fchgrp -l preserve-root -d 'refuse -R on / (default)'
complete -c fchgrp -l exclude -d 'exclude entries that match GLOB' -x
complete -c fchgrp -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fchgrp -l include -d 'include entries that match GLOB' -x
complete -c fchgrp -l include-from -d 'read include patterns from FILE' -r -F
complete -c fchgrp -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fchgrp -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fchgrp -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fchgrp -l older-than -d 'only entries that are not newer than T' -x
complete -c fchgrp -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fchgrp -l min-size -d 'only files of SIZE or more' -x
complete -c fchgrp -l max-size -d 'only files of SIZE or less' -x
complete -c fchgrp -l of-owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fchgrp -l of-group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fchgrp -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fchgrp -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fchgrp -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fchgrp -s x -l one-file-system -d 'stay on one file system'
complete -c fchgrp -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fchgrp -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fchgrp -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fchgrp -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fchgrp -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fchgrp -l ops-limit -d 'total limit on operations per second' -x
complete -c fchgrp -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fchgrp -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fchgrp -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fchgrp -s q -l quiet -d 'report failures only'
complete -c fchgrp -s v -l verbose -d 'list all entries'
complete -c fchgrp -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fchgrp -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fchgrp -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fchgrp -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fchgrp -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fchgrp -l syslog -d 'log a line to syslog at the end'
complete -c fchgrp -l version -d 'show the version'
complete -c fchgrp -l list-out -d 'write a list of the changed entries, for --files-from' -r -F
complete -c fchgrp -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fchgrp -s c -l changes -d 'list changed entries'
complete -c fchgrp -s f -l silent -d 'omit messages about EPERM (given twice: do not exit with 1)'
complete -c fchgrp -n 'not string match -qv -- \'-*\' - (commandline -poc)[2..-1]' -f -a '(__fish_print_groups)'
