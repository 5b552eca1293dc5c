# fish completion of fbcast, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fbcast -l help -d 'show all options'
complete -c fbcast -s h -d 'show the most commonly used options'
complete -c fbcast -l check -d 'compare all nodes with SRC by signature'
complete -c fbcast -l remove -d 'remove entries named like SRC from DST on all nodes'
complete -c fbcast -s u -l update -d 'update existing trees, sending only what differs'
complete -c fbcast -s f -l force -d 'replace existing directories'
complete -c fbcast -s n -l no-clobber -d 'refuse to run if a name exists on any node'
complete -c fbcast -l partial -d 'continue without nodes that fail'
complete -c fbcast -l fsync -d 'flush to disk before publishing'
complete -c fbcast -l record-dir -d 'directory for records (default: ~/.local/state/fbcast)' -x -a '(__fish_complete_directories)'
complete -c fbcast -l timeout -d 'how long a node may take to respond (default: 60 s)' -x
complete -c fbcast -s j -l jobs -d 'processes, per rank under MPI (default: cores, up to 8)' -x
complete -c fbcast -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fbcast -l bwlimit -d 'limit on bytes per second for each node' -x
complete -c fbcast -s q -l quiet -d 'report failures only'
complete -c fbcast -s v -l verbose -d 'report on each node'
complete -c fbcast -l stats -d 'print a table of the nodes: bytes, time and rate'
complete -c fbcast -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fbcast -l syslog -d 'log a line to syslog at the end'
complete -c fbcast -l version -d 'show the version'
