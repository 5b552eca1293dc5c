# fish completion of fsum, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fsum -l help -d 'show all options'
complete -c fsum -s h -d 'show the most commonly used options'
complete -c fsum -s a -l algorithm -d 'digest: xxh128 (default), sha256, sha512, blake2b, blake3' -x -a 'xxh128 md5 sha1 sha224 sha256 sha384 sha512 blake2b blake3'
complete -c fsum -l format -d 'pcsig, or coreutils: one line per file, like sha256sum' -x -a 'pcsig coreutils'
complete -c fsum -s o -l output -d 'also write a manifest of all entries' -r -F
complete -c fsum -l checksums -d 'with -o, also record the checksums that --export needs' -x
complete -c fsum -l force -d 'with -o, replace an existing file'
complete -c fsum -s x -l one-file-system -d 'stay on one file system'
complete -c fsum -s c -l check -d 'compare a tree with a manifest or checksum list' -r -F
complete -c fsum -l quick -d 'with --check, skip files of unchanged size and time'
complete -c fsum -l strict -d 'accepted as in sha256sum; malformed lines always fail'
complete -c fsum -l update -d 'update MANIFEST, reading only changed files' -r -F
complete -c fsum -l rot -d 'reread unmodified files to find silent corruption' -r -F
complete -c fsum -l diff -d 'compare two manifests without reading files' -r -F
complete -c fsum -l export -d 'print a checksum list from a manifest, without reading files' -r -F
complete -c fsum -l exclude -d 'exclude entries that match GLOB' -x
complete -c fsum -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fsum -l include -d 'include entries that match GLOB' -x
complete -c fsum -l include-from -d 'read include patterns from FILE' -r -F
complete -c fsum -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fsum -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fsum -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fsum -l older-than -d 'only entries that are not newer than T' -x
complete -c fsum -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fsum -l min-size -d 'only files of SIZE or more' -x
complete -c fsum -l max-size -d 'only files of SIZE or less' -x
complete -c fsum -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fsum -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fsum -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fsum -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fsum -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fsum -s r -l recursive -d 'with --files-from, include directory contents'
complete -c fsum -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fsum -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fsum -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fsum -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fsum -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fsum -l op-timeout -d 'give up on entries if a file system does not respond in T' -x
complete -c fsum -l open-noatime -d 'do not update access times when reading, if permitted'
complete -c fsum -l chunksize -d 'chunk size of large files (default: adaptive)' -x
complete -c fsum -s q -l quiet -d 'report failures only'
complete -c fsum -s v -l verbose -d 'list the entries that are read, and print a summary'
complete -c fsum -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fsum -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fsum -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fsum -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fsum -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fsum -l syslog -d 'log a line to syslog at the end'
complete -c fsum -l version -d 'show the version'
