# fish completion of fmirror, made from its parser by python -m docs.generate: edit the help there.

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

complete -c fmirror -l help -d 'show all options'
complete -c fmirror -s h -d 'show the most commonly used options'
complete -c fmirror -s c -l checksum -d 'compare file contents, not times'
complete -c fmirror -l size-only -d 'treat files of the same size as unchanged'
complete -c fmirror -s I -l ignore-times -d 'copy all files, even unchanged ones'
complete -c fmirror -l ctime -d 'compare contents of files whose ctime is after the last run'
complete -c fmirror -l modify-window -d 'treat times that differ by at most T as equal' -x
complete -c fmirror -l changed -d 'find changes by walking A (default) or using the file system' -x -a 'walk fs auto'
complete -c fmirror -l since-manifest -d 'read fsum\'s manifest of B instead of B itself' -r -F
complete -c fmirror -l new-manifest -d 'write the manifest of B for the next run' -r -F
complete -c fmirror -l changed-from -d 'examine only the paths listed in FILE (-: stdin)' -r -F
complete -c fmirror -l full-every -d 'examine everything if the last full run is older than T' -x
complete -c fmirror -s u -l update -d 'skip files that are newer in B'
complete -c fmirror -l existing -d 'skip creating new entries in B'
complete -c fmirror -l ignore-existing -d 'skip updating existing entries in B'
complete -c fmirror -s m -l prune-empty-dirs -d 'skip directories that contain no files to copy'
complete -c fmirror -l link-dest -d 'hard-link unchanged entries from DIR (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l compare-dest -d 'skip entries that are unchanged in DIR (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l copy-dest -d 'copy contents from DIR if they are the same (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l reflink-dest -d 'like --copy-dest, but share blocks with DIR (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l moved -d 'rename entries in B that were moved in A'
complete -c fmirror -s a -l archive -d 'keep everything (default)'
complete -c fmirror -l preserve -d 'attributes to keep (default: all): mode, ownership, timestamps, xattr, acl, links, stripe, all' -f -a '(__pcircle_list mode ownership timestamps xattr acl links stripe all)'
complete -c fmirror -s x -l one-file-system -d 'stay on one file system'
complete -c fmirror -l verify -d 'read each copy back from disk and compare'
complete -c fmirror -l fsync -d 'flush to disk before reporting success'
complete -c fmirror -l chown -d 'set the owner and group of all entries' -x -a '(__pcircle_owner)'
complete -c fmirror -l chmod -d 'change modes as in rsync: D2775,Fo-w' -x
complete -c fmirror -l usermap -d 'map users, also in access control lists' -x
complete -c fmirror -l groupmap -d 'map groups, also in access control lists' -x
complete -c fmirror -l numeric-ids -d 'keep numeric user and group IDs (default)'
complete -c fmirror -l delete -d 'delete entries that exist only in B: at the end (default; after or before) or during' -f -a 'after before during'
complete -c fmirror -l delete-excluded -d 'delete excluded entries as well'
complete -c fmirror -l protect -d 'never delete entries that match GLOB' -x
complete -c fmirror -l max-delete -d 'delete nothing if more than N (or N%) would be deleted' -x
complete -c fmirror -l ignore-errors -d 'delete even if part of A could not be read'
complete -c fmirror -l allow-empty -d 'allow A to be empty (normally refused)'
complete -c fmirror -l allow-foreign -d 'allow a source other than the one used by the last run'
complete -c fmirror -l allow-moved -d 'allow deletions after files were moved from A to B'
complete -c fmirror -l remove-source-files -d 'remove files from A after their copies are verified'
complete -c fmirror -l move -d 'like --remove-source-files, and remove empty directories'
complete -c fmirror -l backup-dir -d 'move replaced and deleted entries into DIR' -x -a '(__fish_complete_directories)'
complete -c fmirror -l snapshot -d 'create B/NAME (default: the time), linking unchanged files' -f
complete -c fmirror -l keep -d 'snapshots to retain: 7d,4w,12m' -x
complete -c fmirror -l state-dir -d 'directory for saved state (default: next to B)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l exclude -d 'exclude entries that match GLOB' -x
complete -c fmirror -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fmirror -l include -d 'include entries that match GLOB' -x
complete -c fmirror -l include-from -d 'read include patterns from FILE' -r -F
complete -c fmirror -l files-from -d 'only the paths below A listed in FILE (-: stdin)' -r -F
complete -c fmirror -s 0 -l null -d 'end list entries with NUL, not newline'
complete -c fmirror -l newer-than -d 'only entries newer than T: 30d, 2026-11-30, @0, file:PATH' -x
complete -c fmirror -l older-than -d 'only entries that are not newer than T' -x
complete -c fmirror -l by-time -d 'time that both filters use (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fmirror -l min-size -d 'only files of SIZE or more' -x
complete -c fmirror -l max-size -d 'only files of SIZE or less' -x
complete -c fmirror -l owner -d 'only entries owned by these users (names or numbers)' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fmirror -l group -d 'only entries with these groups (names or numbers)' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fmirror -l kind -d 'only entries of these kinds: f, d, l, p, s, b, c' -x -a '(__pcircle_list f d l p s b c)'
complete -c fmirror -l match -d 'only entries whose path below A matches REGEX' -x
complete -c fmirror -l skip-offline -d 'skip offline files, whose data is on tape'
complete -c fmirror -l strict-operands -d 'require absolute operands without symbolic links'
complete -c fmirror -l insecure-links -d 'follow any symbolic link when opening a FILE argument'
complete -c fmirror -l resume -d 'resume from the checkpoint, or start if there is none'
complete -c fmirror -l restart -d 'discard the checkpoint and start over'
complete -c fmirror -l checkpoint-interval -d 'time between checkpoints (default: 60 s)' -x
complete -c fmirror -l checkpoint-dir -d 'directory for the checkpoint (default: next to the copy)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l no-checkpoint -d 'do not write a checkpoint'
complete -c fmirror -l stop-after -d 'stop cleanly after T (exit code 4)' -x
complete -c fmirror -l stop-at -d 'stop cleanly at TIME: 18:30 or 2026-11-30T18:30' -x
complete -c fmirror -s j -l jobs -d 'number of processes (per rank under MPI; default: up to 8)' -x
complete -c fmirror -l transport -d 'use MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fmirror -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fmirror -l chunksize -d 'chunk size of large files (default: adaptive)' -x
complete -c fmirror -l reflink -d 'clone files if possible (auto), always (also bare), or never' -f -a 'auto always never'
complete -c fmirror -l sparse -d 'keep holes (auto), turn zeros into holes (always), or fill holes (never)' -x -a 'auto always never'
complete -c fmirror -l stripe -d 'Lustre layout of new files: COUNT, all, keep or default' -x -a 'keep default all'
complete -c fmirror -l bwlimit -d 'total limit on bytes per second' -x
complete -c fmirror -l ops-limit -d 'total limit on metadata operations per second' -x
complete -c fmirror -l polite -d 'be busy at most LEVEL% of the time (default: 50)' -f
complete -c fmirror -l open-noatime -d 'do not update access times when reading, if permitted'
complete -c fmirror -s q -l quiet -d 'report failures only'
complete -c fmirror -s v -l verbose -d 'list changes, as -i does (-vv: also inter-process traffic)'
complete -c fmirror -l stats -d 'print a table of processes (given twice: with traffic)'
complete -c fmirror -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fmirror -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fmirror -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fmirror -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fmirror -l syslog -d 'log a line to syslog at the end'
complete -c fmirror -l version -d 'show the version'
complete -c fmirror -l dry-run -d 'show what would be done (with -v: list the entries)'
complete -c fmirror -l plan -d 'write a plan for --apply instead of changing B' -r -F
complete -c fmirror -l apply -d 'carry out a plan, skipping entries that have changed' -r -F
complete -c fmirror -s i -l itemize -d 'list changes in the format of rsync -i'
complete -c fmirror -l list-out -d 'write a list of the copied entries, for --files-from' -r -F
complete -c fmirror -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fmirror -s s -l signature -d 'print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3' -f -a 'xxh128 sha256 sha512 blake2b blake3'
