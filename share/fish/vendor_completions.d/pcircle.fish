# fish completion of pcircle, made from its parser by python -m docs.generate: edit the help there.

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

complete -c pcircle -n '__fish_seen_subcommand_from doctor' -s h -l help -d 'show this help'
complete -c pcircle -n '__fish_seen_subcommand_from doctor' -l no-trials -d 'do not test features, and write nothing to PATH'
complete -c pcircle -n '__fish_seen_subcommand_from doctor' -l timeout -d 'give up on a PATH after T (default: 30 s)' -x
complete -c pcircle -n '__fish_seen_subcommand_from doctor' -l json -d 'write the report as JSON (-: standard output)' -r -F
complete -c pcircle -n '__fish_seen_subcommand_from doctor' -l version -d 'show the version'
complete -c pcircle -n __fish_use_subcommand -f -a doctor -d 'report MPI, limits and file systems'
complete -c pcircle -n __fish_use_subcommand -f -a 'fbcast fbench fchgrp fchmod fchown fcp fdiff ffind fls fmirror fprof frm fsum scale help'
complete -c pcircle -n '__fish_seen_subcommand_from help' -f -a 'doctor fbcast fbench fchgrp fchmod fchown fcp fdiff ffind fls fmirror fprof frm fsum scale'
complete -c pcircle -n '__fish_seen_subcommand_from fbcast fbench fchgrp fchmod fchown fcp fdiff ffind fls fmirror fprof frm fsum scale' -f -a '(__fish_complete_subcommand)'
