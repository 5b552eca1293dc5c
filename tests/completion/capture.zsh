# Prints what zsh would offer for a line: compadd, by which all completions come, is wrapped.
# Run by tests/completion/test_completions.py, with the line as its argument, in a shell of zpty.

compadd() {
    # Those calls that only ask are passed on.
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a hits
    builtin compadd -A hits "$@"
    print -l -- $hits >>$OFFERED
    builtin compadd "$@"
}
