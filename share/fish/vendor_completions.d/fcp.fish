# fish completion of fcp, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fcp -l help -d 'show all options'
complete -c fcp -s h -d 'show the most commonly used options'
complete -c fcp -s r -s R -l recursive -d 'with --files-from, include directory contents'
complete -c fcp -s t -l target-directory -d 'copy all sources into DIR' -x -a '(__fish_complete_directories)'
complete -c fcp -s T -l no-target-directory -d 'copy to DST itself, even if it is a directory'
complete -c fcp -s a -l archive -d '--preserve=all, and copy FIFOs, sockets and devices'
complete -c fcp -s p -d 'like --preserve=mode,ownership,timestamps'
complete -c fcp -l preserve -d 'attributes to keep (default: like -p): mode, ownership, timestamps, xattr, acl, links, stripe, all' -f -a '(__pcircle_list mode ownership timestamps xattr acl links stripe all)'
complete -c fcp -l retry-from -d 'copy only the failed entries logged in ERRORLOG' -r -F
complete -c fcp -s P -l no-dereference -d 'copy symbolic links as links (default)'
complete -c fcp -s L -l dereference -d 'follow all symbolic links'
complete -c fcp -s H -d 'follow only symbolic links given as SRC'
complete -c fcp -s x -l one-file-system -d 'stay on one file system'
complete -c fcp -l verify -d 'read each copy back from disk and compare'
complete -c fcp -l dry-run -d 'show what would be done (with -v: list the entries)'
complete -c fcp -l exclude -d 'exclude entries that match GLOB' -x
complete -c fcp -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fcp -l include -d 'include entries that match GLOB' -x
complete -c fcp -l include-from -d 'read include patterns from FILE' -r -F
complete -c fcp -l files-from -d 'only the paths below SRC listed in FILE (-: stdin)' -r -F
complete -c fcp -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fcp -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fcp -l older-than -d 'only entries that are not newer than T' -x
complete -c fcp -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fcp -l min-size -d 'only files of SIZE or more' -x
complete -c fcp -l max-size -d 'only files of SIZE or less' -x
complete -c fcp -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fcp -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fcp -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fcp -l match -d 'only entries whose path below SRC matches REGEX' -x
complete -c fcp -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fcp -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fcp -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fcp -s f -l force -d 'with --inplace, replace files that cannot be opened'
complete -c fcp -s n -l no-clobber -d 'never overwrite; overrides -u and -f'
complete -c fcp -s u -l update -d 'overwrite only older files'
complete -c fcp -l skip-same -d 'with -p, skip files with the same size and modification time'
complete -c fcp -l inplace -d 'write into existing files (not atomic)'
complete -c fcp -l fsync -d 'flush to disk before reporting success'
complete -c fcp -l resume -d 'resume from the checkpoint, or start if there is none'
complete -c fcp -l restart -d 'discard the checkpoint and start over'
complete -c fcp -l checkpoint-interval -d 'time between checkpoints (default: 60 s)' -x
complete -c fcp -l checkpoint-dir -d 'directory for the checkpoint (default: next to the copy)' -x -a '(__fish_complete_directories)'
complete -c fcp -l no-checkpoint -d 'do not write a checkpoint'
complete -c fcp -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fcp -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fcp -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fcp -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fcp -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fcp -l chunksize -d 'chunk size of large files (default: adaptive)' -x
complete -c fcp -l reflink -d 'clone files if possible (auto), always (also bare), or never' -f -a 'auto always never'
complete -c fcp -l sparse -d 'keep holes (auto), turn zeros into holes (always), or fill holes (never)' -x -a 'auto always never'
complete -c fcp -l stripe -d 'Lustre layout of new files: COUNT, all, keep or default' -x -a 'keep default all'
complete -c fcp -l bwlimit -d 'total limit on bytes per second' -x
complete -c fcp -l ops-limit -d 'total limit on metadata operations per second' -x
complete -c fcp -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fcp -l open-noatime -d 'do not update access times when reading, if permitted'
complete -c fcp -s q -l quiet -d 'report failures only'
complete -c fcp -s v -l verbose -d 'list copied entries (-vv: also inter-process traffic)'
complete -c fcp -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fcp -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fcp -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fcp -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fcp -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fcp -l syslog -d 'log a line to syslog at the end'
complete -c fcp -l version -d 'show the version'
complete -c fcp -l list-out -d 'write a list of the copied entries, for --files-from' -r -F
complete -c fcp -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fcp -s s -l signature -d 'print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3' -f -a 'xxh128 sha256 sha512 blake2b blake3'
