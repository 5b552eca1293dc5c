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
complete -c fmirror -s h -d 'show the most used options'
complete -c fmirror -s c -l checksum -d 'compare the content of files, not times'
complete -c fmirror -l size-only -d 'take files of the same size to be the same'
complete -c fmirror -s I -l ignore-times -d 'copy all files, whatever is there'
complete -c fmirror -l ctime -d 'read files whose change time is new, as with -c'
complete -c fmirror -l modify-window -d 'take times at most T apart to be the same' -x
complete -c fmirror -l changed -d 'look at all, at what the file system tells, or so if proven' -x -a 'walk fs auto'
complete -c fmirror -l since-manifest -d 'read fsum\'s manifest of B, and not B itself' -r -F
complete -c fmirror -l new-manifest -d 'write the manifest of B for the next run' -r -F
complete -c fmirror -l changed-from -d 'look only at what FILE lists (-: stdin)' -r -F
complete -c fmirror -l full-every -d 'look at all if the last time was longer ago (7d)' -x
complete -c fmirror -s u -l update -d 'leave files that are newer in B'
complete -c fmirror -l existing -d 'make nothing that B lacks'
complete -c fmirror -l ignore-existing -d 'leave all files that are in B'
complete -c fmirror -s m -l prune-empty-dirs -d 'leave out directories that hold no files, or only ones left out'
complete -c fmirror -l link-dest -d 'link to unchanged entries in DIR what B lacks (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l compare-dest -d 'leave out what B lacks and DIR has unchanged (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l copy-dest -d 'take content that DIR has from there, not from A (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l reflink-dest -d 'as --copy-dest, sharing the blocks of DIR (repeatable)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l moved -d 'rename in B what only has another path in A'
complete -c fmirror -s a -l archive -d 'keep everything (default)'
complete -c fmirror -l preserve -d 'attributes to keep (default: all): mode, ownership, timestamps, xattr, acl, links, stripe, all' -f -a '(__pcircle_list mode ownership timestamps xattr acl links stripe all)'
complete -c fmirror -s x -l one-file-system -d 'stay on one file system'
complete -c fmirror -l verify -d 'read back what was copied, and compare'
complete -c fmirror -l fsync -d 'flush to disk before reporting success'
complete -c fmirror -l chown -d 'give all entries to USER and GROUP, or to one' -x -a '(__pcircle_owner)'
complete -c fmirror -l chmod -d 'change modes, as with rsync (D2775,Fo-w)' -x
complete -c fmirror -l usermap -d 'map users, also of access control lists' -x
complete -c fmirror -l groupmap -d 'map groups, also of access control lists' -x
complete -c fmirror -l numeric-ids -d 'keep numbers of users and groups (default)'
complete -c fmirror -l delete -d 'remove from B what A has not, last of all (after, bare; before means the same) or in each directory when it was compared (during)' -f -a 'after before during'
complete -c fmirror -l delete-excluded -d 'remove what the filters leave out, too'
complete -c fmirror -l protect -d 'never remove what matches GLOB' -x
complete -c fmirror -l max-delete -d 'if more than N (or N%) would go, remove nothing' -x
complete -c fmirror -l ignore-errors -d 'remove although some of A was not read'
complete -c fmirror -l allow-empty -d 'do as A says also if A is empty'
complete -c fmirror -l allow-foreign -d 'and if A is not what it was the last time'
complete -c fmirror -l allow-moved -d 'and if files were moved from a source to B'
complete -c fmirror -l remove-source-files -d 'remove files from A when their copies were read back'
complete -c fmirror -l move -d 'and directories of A that are empty then'
complete -c fmirror -l backup-dir -d 'move what is replaced or removed into DIR' -x -a '(__fish_complete_directories)'
complete -c fmirror -l snapshot -d 'make B/NAME (bare: the time), linked to the last one where nothing changed' -f
complete -c fmirror -l keep -d 'of snapshots named by dates keep these, as in 7d,4w,12m' -x
complete -c fmirror -l state-dir -d 'remember A\'s identity in DIR (default: beside B)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l exclude -d 'exclude entries that match GLOB' -x
complete -c fmirror -l exclude-from -d 'read exclude patterns from FILE' -r -F
complete -c fmirror -l include -d 'include entries that match GLOB' -x
complete -c fmirror -l include-from -d 'read include patterns from FILE' -r -F
complete -c fmirror -l files-from -d 'only paths below A that FILE lists (-: stdin)' -r -F
complete -c fmirror -s 0 -l null -d 'lists are NUL-terminated'
complete -c fmirror -l newer-than -d 'changed after T: 30d (ago), 2026-11-30, @0, file:PATH' -x
complete -c fmirror -l older-than -d 'changed at or before T' -x
complete -c fmirror -l by-time -d 'time that these compare (default: mtime)' -x -a 'mtime ctime atime btime'
complete -c fmirror -l min-size -d 'of at least SIZE' -x
complete -c fmirror -l max-size -d 'of at most SIZE' -x
complete -c fmirror -l owner -d 'of one of these users, by name or number' -x -a '(__pcircle_list (__fish_print_users))'
complete -c fmirror -l group -d 'of one of these groups, by name or number' -x -a '(__pcircle_list (__fish_print_groups))'
complete -c fmirror -l kind -d 'of these kinds: f, d, l, p, s, b, c, as of find' -x -a '(__pcircle_list f d l p s b c)'
complete -c fmirror -l match -d 'with a match of REGEX in the path below A' -x
complete -c fmirror -l skip-offline -d 'leave out files whose data is on tape'
complete -c fmirror -l strict-operands -d 'refuse operands that are relative or lead along links'
complete -c fmirror -l insecure-links -d 'open FILEs of options along any link'
complete -c fmirror -l resume -d 'resume, or start if there is no checkpoint'
complete -c fmirror -l restart -d 'discard the checkpoint and start over'
complete -c fmirror -l checkpoint-interval -d 'checkpoint interval (default: 60 s)' -x
complete -c fmirror -l checkpoint-dir -d 'directory of the checkpoint (default: beside the copy)' -x -a '(__fish_complete_directories)'
complete -c fmirror -l no-checkpoint -d 'write no checkpoint'
complete -c fmirror -l stop-after -d 'stop in good order after T (exit code 4)' -x
complete -c fmirror -l stop-at -d 'stop in good order at TIME: 18:30, 2026-11-30T18:30' -x
complete -c fmirror -s j -l jobs -d 'processes, or for each of mpirun\'s (default: cores, <= 8)' -x
complete -c fmirror -l transport -d 'MPI or local processes (default: auto)' -x -a 'auto mpi local'
complete -c fmirror -l threads -d 'concurrent operations per process (default: adaptive)' -x
complete -c fmirror -l chunksize -d 'chunk size of large files (default: adaptive)' -x
complete -c fmirror -l reflink -d 'clone files if possible (auto), or fail (always, bare), or never' -f -a 'auto always never'
complete -c fmirror -l sparse -d 'keep holes (auto), turn zeros into holes (always), or fill holes' -x -a 'auto always never'
complete -c fmirror -l stripe -d 'Lustre layout of new files: COUNT, all, keep or default' -x -a 'keep default all'
complete -c fmirror -l bwlimit -d 'bytes per second, all processes together' -x
complete -c fmirror -l ops-limit -d 'metadata operations per second, all processes together' -x
complete -c fmirror -s q -l quiet -d 'report failures only'
complete -c fmirror -s v -l verbose -d 'per-process statistics (-vv: more)'
complete -c fmirror -l progress -d 'show progress (default: auto)' -x -a 'auto always never'
complete -c fmirror -l interval -d 'time between progress lines (default: 10 s)' -x
complete -c fmirror -l json -d 'write the result as JSON (-: standard output)' -r -F
complete -c fmirror -l error-log -d 'write a line of JSON for each failed entry' -r -F
complete -c fmirror -l syslog -d 'log a line to syslog at the end'
complete -c fmirror -l version -d 'show the version'
complete -c fmirror -l dry-run -d 'show what would be done (-v: list entries)'
complete -c fmirror -l plan -d 'change nothing, but write a plan for --apply' -r -F
complete -c fmirror -l apply -d 'do what a plan lists, unless it has changed' -r -F
complete -c fmirror -s i -l itemize -d 'list changes in the columns of rsync -i'
complete -c fmirror -l list-out -d 'list the copied entries, as --files-from reads them' -r -F
complete -c fmirror -l json-lines -d 'write a line of JSON for each action (-: standard output)' -r -F
complete -c fmirror -s s -l signature -d 'print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3' -f -a 'xxh128 sha256 sha512 blake2b blake3'
