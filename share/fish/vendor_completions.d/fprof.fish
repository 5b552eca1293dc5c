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
complete -c fprof -s h -d 'show the most commonly used options'
complete -c fprof -l bins -d 'edges of the size histogram: 4k,1M,1G, log2 or pow4' -x -a 'log2 pow4'
complete -c fprof -l by -d 'group by age, owner, group, ext, depth, dirsize' -x -a '(__pcircle_list age owner group ext depth dirsize)'
complete -c fprof -l dirbins -d 'group directories by entry count, with edges such as 10,100' -x
complete -c fprof -l top -d 'list the N largest, newest and oldest entries' -x
complete -c fprof -s d -l depth -d 'show directories N levels deep, largest first' -x
complete -c fprof -l min-depth -d 'hide directories less than N levels deep' -x
complete -c fprof -l blocks -d 'estimate space with blocks of each SIZE or SIZE/SUBBLOCK' -x
complete -c fprof -l data-in-inode -d 'assume that files up to SIZE are stored in inodes' -x
complete -c fprof -l sparse -d 'report sparse files and space saved by compression'
complete -c fprof -l stripe -d 'report Lustre layouts'
complete -c fprof -l compress -d 'estimate compression from SAMPLE pieces (default: 1024)' -f
complete -c fprof -s x -l one-file-system -d 'stay on one file system'
complete -c fprof -l exclude -d 'exclude entries that match GLOB' -x
complete -c fprof -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fprof -l include -d 'include entries that match GLOB' -x
complete -c fprof -l include-from -d 'read include patterns from FILE' -r -F
complete -c fprof -l files-from -d 'only the paths below PATH listed in FILE (-: stdin)' -r -F
complete -c fprof -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fprof -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fprof -l older-than -d 'only entries that are not newer than T' -x
complete -c fprof -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fprof -l min-size -d 'only files of SIZE or more' -x
complete -c fprof -l max-size -d 'only files of SIZE or less' -x
complete -c fprof -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fprof -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fprof -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fprof -l match -d 'only entries whose path below PATH matches REGEX' -x
complete -c fprof -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fprof -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fprof -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fprof -l save -d 'save the profile for --merge and --diff' -r -F
complete -c fprof -l entries -d 'with --save, also save an index of all entries'
complete -c fprof -l html -d 'write a self-contained page with charts and a treemap' -r -F
complete -c fprof -l list-out -d 'list sparse, stripe, compress or special files in FILE' -x
complete -c fprof -l plot -d 'write a plot as .png, .svg or .pdf (requires matplotlib)' -r -F
complete -c fprof -l csv -d 'write the tables as CSV files to DIR' -x -a '(__fish_complete_directories)'
complete -c fprof -l merge -d 'report on several saved profiles as one'
complete -c fprof -l diff -d 'report growth and shrinkage between two profiles' -r -F
complete -c fprof -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fprof -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fprof -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fprof -l op-timeout -d 'give up on entries if a file system does not respond in T' -x
complete -c fprof -s q -l quiet -d 'report failures only'
complete -c fprof -s v -l verbose -d 'list the entries that are read, and print a summary'
complete -c fprof -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fprof -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fprof -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fprof -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fprof -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fprof -l syslog -d 'log a line to syslog at the end'
complete -c fprof -l version -d 'show the version'
