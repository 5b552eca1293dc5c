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

complete -c fchown -l help -d 'show this help (=short: the most used options)'
complete -c fchown -s R -l recursive -d 'change what is in directories, too'
complete -c fchown -l reference -d 'take what is to be set from FILE' -r -F
complete -c fchown -l from -d 'only entries of this owner and group' -x -a '(__pcircle_owner)'
complete -c fchown -l usermap -d 'map owners: FROM:TO,... as of rsync' -x
complete -c fchown -l groupmap -d 'map groups, in the same way' -x
complete -c fchown -l acl -d 'change access control lists, as setfacl -m' -x
complete -c fchown -l acl-remove -d 'remove entries, as setfacl -x, or all' -f
complete -c fchown -l default-acl -d 'change default lists, as setfacl -dm' -x
complete -c fchown -l keep-setid -d 'set set-id bits again if the owner changes'
complete -c fchown -l no-setid -d 'clear the set-id bits of all files'
complete -c fchown -l force -d 'make calls also where nothing would change'
complete -c fchown -l undo -d 'write what all was, for --apply' -r -F
complete -c fchown -l apply -d 'restore what a run with --undo has changed' -r -F
complete -c fchown -l dry-run -d 'show what would be done (-c: list entries)'
complete -c fchown -s h -l no-dereference -d 'change a link itself, not its target'
complete -c fchown -s H -d 'follow links given as PATH'
complete -c fchown -s L -d 'follow all links, also those in directories'
complete -c fchown -s P -d 'follow no links'
complete -c fchown -l no-preserve-root -d 'do not refuse to work on / with -R'
complete -c fchown -l preserve-root -d 'refuse to work on / with -R (default)'
complete -c fchown -l exclude -d 'exclude entries that match GLOB' -x
complete -c fchown -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fchown -l include -d 'include entries that match GLOB' -x
complete -c fchown -l include-from -d 'read include patterns from FILE' -r -F
complete -c fchown -l files-from -d 'only paths below PATH that FILE lists (-: stdin)' -r -F
complete -c fchown -s 0 -l null -d 'lists are NUL-terminated'
complete -c fchown -l newer-than -d 'changed after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c fchown -l older-than -d 'changed at or before T' -x
complete -c fchown -l by-time -d 'time that these compare (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fchown -l min-size -d 'of at least SIZE' -x
complete -c fchown -l max-size -d 'of at most SIZE' -x
complete -c fchown -l of-owner -d 'of one of these users, by name or number' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fchown -l of-group -d 'of one of these groups, by name or number' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fchown -l kind -d 'of these kinds: f, d, l, p, s, b, c, as of find' -x -a '(__pcircle_list f d l p s b c)'
complete -c fchown -l match -d 'with a match of REGEX in the path below PATH' -x
complete -c fchown -l skip-offline -d 'leave out files whose data is on tape'
complete -c fchown -s x -l one-file-system -d 'stay on one file system'
complete -c fchown -l strict-operands -d 'refuse operands that are relative or lead along links'
complete -c fchown -l insecure-links -d 'open FILEs of options along any link'
complete -c fchown -s j -l jobs -d 'processes, or for each of mpirun\'s (default: cores, <= 8)' -x
complete -c fchown -l transport -d 'MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fchown -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fchown -l ops-limit -d 'operations per second, all processes together' -x
complete -c fchown -l polite -d 'spare others: busy LEVEL% of the time (50), or less' -f
complete -c fchown -l stop-after -d 'stop in good order after T (exit code 4)' -x
complete -c fchown -l stop-at -d 'stop in good order at TIME: 18:30, 2026-11-30T18:30' -x
complete -c fchown -s q -l quiet -d 'report failures only'
complete -c fchown -s v -l verbose -d 'list all entries (-vv: per-process statistics)'
complete -c fchown -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fchown -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fchown -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fchown -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fchown -l syslog -d 'log a line to syslog at the end'
complete -c fchown -l version -d 'show the version'
complete -c fchown -l list-out -d 'list the changed entries, as --files-from reads them' -r -F
complete -c fchown -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fchown -s c -l changes -d 'list changed entries'
complete -c fchown -s f -l silent -d 'no messages for EPERM (twice: and no exit code 1)'
complete -c fchown -n 'not string match -qv -- \'-*\' - (commandline -poc)[2..-1]' -f -a '(__pcircle_owner)'
