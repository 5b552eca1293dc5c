# fish completion of fbench, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fbench -l help -d 'show all options'
complete -c fbench -s h -d 'show the most commonly used options'
complete -c fbench -l case -d 'measure this case (repeatable; default: all)' -x -a 'random stream overlap metadata blocking continuation case1 case2 case3 sweep latency submission small large'
complete -c fbench -l backend -d 'measure this backend (repeatable; default: both)' -x -a 'blocking threads'
complete -c fbench -s j -l jobs -l clients -d 'clients, or clients per MPI rank (default: 1)' -x
complete -c fbench -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fbench -l threads -d 'threads per client (default: adaptive)' -x
complete -c fbench -l files -d 'files per client (default: 4; papers: 5)' -x
complete -c fbench -l blocks -d 'blocks per file (default: 64; papers: 100)' -x
complete -c fbench -l block-size -d 'size of a block (default: 1M)' -x
complete -c fbench -l seed -d 'seed for the tree or the damage (default: 0)' -x
complete -c fbench -l shape -d 'shape of the tree, such as files=1000,depth=5,size=64k' -x
complete -c fbench -l made -d 'record of the tree to corrupt' -r -F
complete -c fbench -l changes -d 'number of files to corrupt (default: 10)' -x
complete -c fbench -l record -d 'write the record to FILE (default: standard output)' -r -F
complete -c fbench -s q -l quiet -d 'report failures only'
complete -c fbench -l json -d 'write the figures as JSON (-: standard output)' -r -F
complete -c fbench -l plot -d 'write a plot as .png, .svg or .pdf (requires matplotlib)' -r -F
complete -c fbench -l syslog -d 'log a line to syslog at the end'
complete -c fbench -l version -d 'show the version'
