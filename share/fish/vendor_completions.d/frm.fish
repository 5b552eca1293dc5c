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
complete -c frm -s h -d 'show the most used options'
complete -c frm -s r -s R -l recursive -d 'remove directories, contents first'
complete -c frm -s f -l force -d 'ignore a PATH that does not exist'
complete -c frm -s d -l dir -d 'remove empty directories'
complete -c frm -s i -d 'refused: nothing is asked; use --plan'
complete -c frm -s I -d 'refused, like -i'
complete -c frm -l keep-root -d 'empty each PATH, but keep PATH itself'
complete -c frm -l trash -d 'move each PATH into DIR, on the same file system' -x -a '(__fish_complete_directories)'
complete -c frm -l empty-trash -d 'remove what --trash has moved into DIR' -x -a '(__fish_complete_directories)'
complete -c frm -l empty-dirs -d 'only directories that are or become empty'
complete -c frm -l keep-times -d 'keep the times of directories that stay'
complete -c frm -l force-modes -d 'give the owner u+rwx on directories'
complete -c frm -l cross-mounts -d 'enter other file systems and bind mounts'
complete -c frm -s x -l one-file-system -d 'stay on one file system (default)'
complete -c frm -l plan -d 'remove nothing, but write a plan for --apply' -r -F
complete -c frm -l apply -d 'remove what a plan lists, unless it has changed' -r -F
complete -c frm -l max-delete -d 'if more than N (or N%) would go, remove nothing' -x
complete -c frm -l bytes -d 'report the bytes freed (looks up each file)'
complete -c frm -l dry-run -d 'show what would be done (-v: list entries)'
complete -c frm -l exclude -d 'exclude entries that match GLOB' -x
complete -c frm -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c frm -l include -d 'include entries that match GLOB' -x
complete -c frm -l include-from -d 'read include patterns from FILE' -r -F
complete -c frm -l files-from -d 'only paths below PATH that FILE lists (-: stdin)' -r -F
complete -c frm -s 0 -l null -d 'lists are NUL-terminated'
complete -c frm -l newer-than -d 'changed after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c frm -l older-than -d 'changed at or before T' -x
complete -c frm -l by-time -d 'time that these compare (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c frm -l min-size -d 'of at least SIZE' -x
complete -c frm -l max-size -d 'of at most SIZE' -x
complete -c frm -l owner -d 'of one of these users, by name or number' -x -a '(__pcircle_list (__fish_print_users))'
complete -c frm -l group -d 'of one of these groups, by name or number' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c frm -l kind -d 'of these kinds: f, d, l, p, s, b, c, as of find' -x -a '(__pcircle_list f d l p s b c)'
complete -c frm -l match -d 'with a match of REGEX in the path below PATH' -x
complete -c frm -l skip-offline -d 'leave out files whose data is on tape'
complete -c frm -l strict-operands -d 'refuse operands that are relative or lead along links'
complete -c frm -l insecure-links -d 'open FILEs of options along any link'
complete -c frm -s j -l jobs -d 'processes, or for each of mpirun\'s (default: cores, <= 8)' -x
complete -c frm -l transport -d 'MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c frm -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c frm -l ops-limit -d 'operations per second, all processes together' -x
complete -c frm -l polite -d 'spare others: busy LEVEL% of the time (50), or less' -f
complete -c frm -l stop-after -d 'stop in good order after T (exit code 4)' -x
complete -c frm -l stop-at -d 'stop in good order at TIME: 18:30, 2026-11-30T18:30' -x
complete -c frm -s q -l quiet -d 'report failures only'
complete -c frm -s v -l verbose -d 'list removed entries (-vv: per-process statistics)'
complete -c frm -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c frm -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c frm -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c frm -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c frm -l syslog -d 'log a line to syslog at the end'
complete -c frm -l version -d 'show the version'
complete -c frm -l list-out -d 'list the removed entries, as --files-from reads them' -r -F
complete -c frm -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
