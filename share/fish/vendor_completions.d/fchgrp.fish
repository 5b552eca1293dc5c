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

complete -c fchgrp -l help -d 'show this help (=short: the most used options)'
complete -c fchgrp -s R -l recursive -d 'change what is in directories, too'
complete -c fchgrp -l reference -d 'take what is to be set from FILE' -r -F
complete -c fchgrp -l from -d 'only entries of this owner and group' -x -a '(__pcircle_owner)'
complete -c fchgrp -l usermap -d 'map owners: FROM:TO,... as of rsync' -x
complete -c fchgrp -l groupmap -d 'map groups, in the same way' -x
complete -c fchgrp -l acl -d 'change access control lists, as setfacl -m' -x
complete -c fchgrp -l acl-remove -d 'remove entries, as setfacl -x, or all' -f
complete -c fchgrp -l default-acl -d 'change default lists, as setfacl -dm' -x
complete -c fchgrp -l keep-setid -d 'set set-id bits again if the owner changes'
complete -c fchgrp -l no-setid -d 'clear the set-id bits of all files'
complete -c fchgrp -l force -d 'make calls also where nothing would change'
complete -c fchgrp -l undo -d 'write what all was, for --apply' -r -F
complete -c fchgrp -l apply -d 'restore what a run with --undo has changed' -r -F
complete -c fchgrp -l dry-run -d 'show what would be done (-c: list entries)'
complete -c fchgrp -s h -l no-dereference -d 'change a link itself, not its target'
complete -c fchgrp -s H -d 'follow links given as PATH'
complete -c fchgrp -s L -d 'follow all links, also those in directories'
complete -c fchgrp -s P -d 'follow no links'
complete -c fchgrp -l no-preserve-root -d 'do not refuse to work on / with -R'
complete -c fchgrp -l preserve-root -d 'refuse to work on / with -R (default)'
complete -c fchgrp -l exclude -d 'exclude entries that match GLOB' -x
complete -c fchgrp -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fchgrp -l include -d 'include entries that match GLOB' -x
complete -c fchgrp -l include-from -d 'read include patterns from FILE' -r -F
complete -c fchgrp -l files-from -d 'only paths below PATH that FILE lists (-: stdin)' -r -F
complete -c fchgrp -s 0 -l null -d 'lists are NUL-terminated'
complete -c fchgrp -l newer-than -d 'changed after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c fchgrp -l older-than -d 'changed at or before T' -x
complete -c fchgrp -l by-time -d 'time that these compare (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fchgrp -l min-size -d 'of at least SIZE' -x
complete -c fchgrp -l max-size -d 'of at most SIZE' -x
complete -c fchgrp -l of-owner -d 'of one of these users, by name or number' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fchgrp -l of-group -d 'of one of these groups, by name or number' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fchgrp -l kind -d 'of these kinds: f, d, l, p, s, b, c, as of find' -x -a '(__pcircle_list f d l p s b c)'
complete -c fchgrp -l match -d 'with a match of REGEX in the path below PATH' -x
complete -c fchgrp -l skip-offline -d 'leave out files whose data is on tape'
complete -c fchgrp -s x -l one-file-system -d 'stay on one file system'
complete -c fchgrp -l strict-operands -d 'refuse operands that are relative or lead along links'
complete -c fchgrp -l insecure-links -d 'open FILEs of options along any link'
complete -c fchgrp -s j -l jobs -d 'processes, or for each of mpirun\'s (default: cores, <= 8)' -x
complete -c fchgrp -l transport -d 'MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fchgrp -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fchgrp -l ops-limit -d 'operations per second, all processes together' -x
complete -c fchgrp -l polite -d 'spare others: busy LEVEL% of the time (50), or less' -f
complete -c fchgrp -l stop-after -d 'stop in good order after T (exit code 4)' -x
complete -c fchgrp -l stop-at -d 'stop in good order at TIME: 18:30, 2026-11-30T18:30' -x
complete -c fchgrp -s q -l quiet -d 'report failures only'
complete -c fchgrp -s v -l verbose -d 'list all entries (-vv: per-process statistics)'
complete -c fchgrp -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fchgrp -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fchgrp -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fchgrp -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fchgrp -l syslog -d 'log a line to syslog at the end'
complete -c fchgrp -l version -d 'show the version'
complete -c fchgrp -l list-out -d 'list the changed entries, as --files-from reads them' -r -F
complete -c fchgrp -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fchgrp -s c -l changes -d 'list changed entries'
complete -c fchgrp -s f -l silent -d 'no messages for EPERM (twice: and no exit code 1)'
complete -c fchgrp -n 'not string match -qv -- \'-*\' - (commandline -poc)[2..-1]' -f -a '(__fish_print_groups)'
