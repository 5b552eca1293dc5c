# fish completion of ffind, made from its parser by python -m docs.generate: edit the help there.

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

complete -c ffind -l help -d 'show all options'
complete -c ffind -s h -d 'show the most commonly used options'
complete -c ffind -l sort -d 'sort by KEYS, such as size,-mtime (default: path)' -f -a '(__pcircle_list path name ext size blocks mtime ctime atime inode links uid gid user group depth)'
complete -c ffind -l top -d 'print only the N largest, or the first N by --by' -x
complete -c ffind -l by -d 'sort keys of --top (default: size)' -x -a '(__pcircle_list path name ext size blocks mtime ctime atime inode links uid gid user group depth)'
complete -c ffind -l stat -d 'never: refuse tests that need a lookup (default: auto)' -x -a 'auto never'
complete -c ffind -l in -d 'search a saved index, not the file system' -r -F
complete -c ffind -l dry-run -d 'show what would be removed or executed'
complete -c ffind -l plan -d 'write a plan for --apply instead of removing' -r -F
complete -c ffind -l apply -d 'remove the entries in a plan, unless they have changed' -r -F
complete -c ffind -l max-delete -d 'remove nothing if more than N (or N%) would be removed' -x
complete -c ffind -l exclude -d 'exclude entries that match GLOB' -x
complete -c ffind -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c ffind -l include -d 'include entries that match GLOB' -x
complete -c ffind -l include-from -d 'read include patterns from FILE' -r -F
complete -c ffind -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c ffind -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c ffind -l strict-operands -d 'require absolute operands without symbolic links'
complete -c ffind -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c ffind -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c ffind -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c ffind -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c ffind -l op-timeout -d 'give up on entries if a file system does not respond in T' -x
complete -c ffind -l ops-limit -d 'total limit on removals per second' -x
complete -c ffind -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c ffind -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c ffind -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c ffind -s q -l quiet -d 'report failures only'
complete -c ffind -s v -l verbose -d 'report what was done (-vv: also inter-process traffic)'
complete -c ffind -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c ffind -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c ffind -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c ffind -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c ffind -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c ffind -l syslog -d 'log a line to syslog at the end'
complete -c ffind -l version -d 'show the version'
complete -c ffind -l list-out -d 'write a list of the entries found, for use with other tools' -r -F
complete -c ffind -l json-lines -d 'write a line of JSON for each removal' -r -F
complete -c ffind -o not -d 'true if the next primary is false, like !'
complete -c ffind -o and -o a -d 'both; the default between two primaries'
complete -c ffind -o or -o o -d 'either; the second only if the first is false'
complete -c ffind -o exclude -d 'neither evaluate nor enter entries that match the next primary'
complete -c ffind -o P -d 'never follow symbolic links (default)'
complete -c ffind -o H -d 'follow symbolic links given as PATH'
complete -c ffind -o L -o follow -d 'follow all symbolic links'
complete -c ffind -o O0 -o O1 -o O2 -o O3 -d 'accepted and ignored: -O0 to -O3'
complete -c ffind -o D -d 'accepted and ignored' -x
complete -c ffind -o d -o depth -d 'directories after their contents'
complete -c ffind -o maxdepth -d 'at most N levels below each PATH' -x
complete -c ffind -o mindepth -d 'not the first N levels' -x
complete -c ffind -o mount -o xdev -d 'stay on one file system'
complete -c ffind -o files0-from -d 'read PATHs from FILE, NUL-terminated' -r -F
complete -c ffind -o regextype -d 'syntax of the regular expressions that follow' -x -a 'awk ed egrep emacs findutils-default gnu-awk grep posix-awk posix-basic posix-egrep posix-extended posix-minimal-basic sed'
complete -c ffind -o daystart -d 'measure the times that follow from the start of today'
complete -c ffind -o ignore_readdir_race -d 'entries that vanish during the search are not failures (default)'
complete -c ffind -o noignore_readdir_race -d 'entries that vanish during the search are failures'
complete -c ffind -o warn -d 'warn about misleading expressions (default)'
complete -c ffind -o nowarn -d 'do not warn'
complete -c ffind -o noleaf -d 'accepted and ignored'
complete -c ffind -o name -d 'name matches PATTERN' -x
complete -c ffind -o iname -d 'like -name, ignoring case' -x
complete -c ffind -o path -o wholename -d 'path matches PATTERN' -x
complete -c ffind -o ipath -o iwholename -d 'like -path, ignoring case' -x
complete -c ffind -o regex -d 'path matches REGEX as a whole' -x
complete -c ffind -o iregex -d 'like -regex, ignoring case' -x
complete -c ffind -o lname -d 'symbolic link whose target matches PATTERN' -x
complete -c ffind -o ilname -d 'like -lname, ignoring case' -x
complete -c ffind -o type -d 'kind is one of: b, c, d, f, l, p, s' -x -a 'b c d f l p s'
complete -c ffind -o xtype -d 'like -type, for the target of a symbolic link' -x -a 'b c d f l p s'
complete -c ffind -o empty -d 'file or directory that is empty'
complete -c ffind -o size -d 'size in units of c, w, b, k, M, G, T, P, rounded up' -x
complete -c ffind -o bytes -d 'size in bytes, not rounded: +1G, -64k' -x
complete -c ffind -o blocks -d 'blocks of 512 bytes on disk' -x
complete -c ffind -o sparse -d 'fewer blocks on disk than the size requires'
complete -c ffind -o links -d 'number of hard links' -x
complete -c ffind -o inum -d 'inode number' -x
complete -c ffind -o samefile -d 'the same inode as FILE' -r -F
complete -c ffind -o fstype -d 'on a file system of this type' -x
complete -c ffind -o perm -d 'mode is MODE; -MODE: all of its bits; /MODE: any' -x
complete -c ffind -o user -d 'owner, by name or number' -x -a '(__fish_print_users)'
complete -c ffind -o group -d 'group, by name or number' -x -a '(__fish_print_groups)'
complete -c ffind -o uid -d 'number of the owner' -x
complete -c ffind -o gid -d 'number of the group' -x
complete -c ffind -o nouser -d 'the owner has no name'
complete -c ffind -o nogroup -d 'the group has no name'
complete -c ffind -o readable -d 'you may read it'
complete -c ffind -o writable -d 'you may write to it'
complete -c ffind -o executable -d 'you may execute or search it'
complete -c ffind -o flags -d 'flags of chattr(1): exactly these; -: at least; /: any' -x
complete -c ffind -o xattr -d 'has an extended attribute'
complete -c ffind -o xattrname -d 'has the extended attribute NAME' -x
complete -c ffind -o acl -d 'has an access control list'
complete -c ffind -o capable -d 'has capabilities'
complete -c ffind -o amin -d 'accessed N minutes ago' -x
complete -c ffind -o cmin -d 'status changed N minutes ago' -x
complete -c ffind -o mmin -d 'modified N minutes ago' -x
complete -c ffind -o atime -d 'accessed N days ago' -x
complete -c ffind -o ctime -d 'status changed N days ago' -x
complete -c ffind -o mtime -d 'modified N days ago' -x
complete -c ffind -o anewer -d 'accessed after FILE was modified' -r -F
complete -c ffind -o cnewer -d 'status changed after FILE was modified' -r -F
complete -c ffind -o newer -d 'modified after FILE' -r -F
complete -c ffind -o neweraa -o neweraB -o newerac -o neweram -o newerat -o newerBa -o newerBB -o newerBc -o newerBm -o newerBt -o newerca -o newercB -o newercc -o newercm -o newerct -o newerma -o newermB -o newermc -o newermm -o newermt -d 'time X after time Y of FILE; X: a, B, c, m; Y: the same or t, a date' -r -F
complete -c ffind -o since -d 'modified after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c ffind -o until -d 'modified at or before T' -x
complete -c ffind -o used -d 'accessed N days after its status changed' -x
complete -c ffind -o stripe-count -d 'number of stripes' -x
complete -c ffind -o stripe-size -d 'size of a stripe' -x
complete -c ffind -o pool -d 'in the pool NAME' -x
complete -c ffind -o ost -d 'has an object on this OST' -x
complete -c ffind -o mdt -d 'inode on this MDT' -x
complete -c ffind -o layout -d 'data only in the archive' -x -a 'released'
complete -c ffind -o true -d 'always'
complete -c ffind -o false -d 'never'
complete -c ffind -o print -d 'write the path (default)'
complete -c ffind -o print0 -d 'write the path, NUL-terminated'
complete -c ffind -o printf -d 'write FORMAT, as find does' -x
complete -c ffind -o ls -d 'write a line like ls -dils'
complete -c ffind -o json -d 'write a line of JSON'
complete -c ffind -o csv -d 'write a line of CSV'
complete -c ffind -o fprint -d 'like -print, to FILE' -r -F
complete -c ffind -o fprint0 -d 'like -print0, to FILE' -r -F
complete -c ffind -o fprintf -d 'like -printf, to FILE' -r -F
complete -c ffind -o fls -d 'like -ls, to FILE' -r -F
complete -c ffind -o count -d 'at the end, write the number of entries'
complete -c ffind -o du -d 'at the end, write the bytes that they occupy on disk'
complete -c ffind -o exists -d 'write nothing; exit code 3 if this is never reached'
complete -c ffind -o delete -d 'remove the entry; implies -depth'
complete -c ffind -o exec -d 'run COMMAND up to \';\', or up to \'{} +\' for many entries at once' -x -a '(__fish_complete_command)'
complete -c ffind -o execdir -d 'like -exec, in the directory of the entry' -x -a '(__fish_complete_command)'
complete -c ffind -o prune -d 'do not enter this directory'
complete -c ffind -o limit -d 'stop after the N-th time' -x
complete -c ffind -o quit -d 'stop at once'
