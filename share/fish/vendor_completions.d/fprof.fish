# fish completion of fprof, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fprof -l help -d 'show all options'
complete -c fprof -s h -d 'show the most used options'
complete -c fprof -l bins -d 'edges of the size histogram: 4k,1M,1G or log2 or pow4' -x -a 'log2 pow4'
complete -c fprof -l by -d 'group by age, owner, group, ext, depth, dirsize' -x -a '(__pcircle_list age owner group ext depth dirsize)'
complete -c fprof -l top -d 'list N largest, newest and oldest files, and directories' -x
complete -c fprof -s d -l depth -d 'sizes of directories, N levels deep, largest first' -x
complete -c fprof -l blocks -d 'space needed with blocks of each SIZE or SIZE/SUBBLOCK' -x
complete -c fprof -l data-in-inode -d 'assume that inodes hold files up to SIZE' -x
complete -c fprof -l sparse -d 'sparse files, and what compression saves now'
complete -c fprof -l stripe -d 'Lustre layouts of files'
complete -c fprof -l compress -d 'estimate compression from SAMPLE pieces (default: 1024)' -f
complete -c fprof -s x -l one-file-system -d 'stay on one file system'
complete -c fprof -l exclude -d 'exclude entries that match GLOB' -x
complete -c fprof -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fprof -l include -d 'include entries that match GLOB' -x
complete -c fprof -l include-from -d 'read include patterns from FILE' -r -F
complete -c fprof -l files-from -d 'only paths below PATH that FILE lists (-: stdin)' -r -F
complete -c fprof -s 0 -l null -d 'lists are NUL-terminated'
complete -c fprof -l newer-than -d 'changed after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c fprof -l older-than -d 'changed at or before T' -x
complete -c fprof -l by-time -d 'time that these compare (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fprof -l min-size -d 'of at least SIZE' -x
complete -c fprof -l max-size -d 'of at most SIZE' -x
complete -c fprof -l owner -d 'of one of these users, by name or number' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fprof -l group -d 'of one of these groups, by name or number' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fprof -l kind -d 'of these kinds: f, d, l, p, s, b, c, as of find' -x -a '(__pcircle_list f d l p s b c)'
complete -c fprof -l match -d 'with a match of REGEX in the path below PATH' -x
complete -c fprof -l skip-offline -d 'leave out files whose data is on tape'
complete -c fprof -l strict-operands -d 'refuse operands that are relative or lead along links'
complete -c fprof -l insecure-links -d 'open FILEs of options along any link'
complete -c fprof -l save -d 'save the profile for --merge and --diff' -r -F
complete -c fprof -l entries -d 'with --save, an index of all entries as well'
complete -c fprof -l html -d 'write a self-contained page with charts and a treemap' -r -F
complete -c fprof -l list-out -d 'list files that are sparse, stripe, compress, special' -x
complete -c fprof -l plot -d 'write a .png, .svg or .pdf (requires matplotlib)' -r -F
complete -c fprof -l csv -d 'write the tables as CSV files into DIR' -x -a '(__fish_complete_directories)'
complete -c fprof -l merge -d 'report on saved profiles together'
complete -c fprof -l diff -d 'report what has grown and shrunk' -r -F
complete -c fprof -s j -l jobs -d 'processes, or for each of mpirun\'s (default: cores, <= 8)' -x
complete -c fprof -l transport -d 'MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fprof -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fprof -l op-timeout -d 'fail entries whose file system does not answer in T' -x
complete -c fprof -s q -l quiet -d 'report failures only'
complete -c fprof -s v -l verbose -d 'per-process statistics (-vv: more)'
complete -c fprof -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fprof -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fprof -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fprof -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fprof -l syslog -d 'log a line to syslog at the end'
complete -c fprof -l version -d 'show the version'
