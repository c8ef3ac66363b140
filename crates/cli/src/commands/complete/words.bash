
# Words of tc, interfaces and classes, which depend on this host.
_narrows_words() {
    local line="${COMP_LINE:0:COMP_POINT}" found
    local -a words
    # A handle is one word, although the shell divides it at its colon.
    read -r -a words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    local typed="${words[-1]}"
    mapfile -t COMPREPLY < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    if (( ${#COMPREPLY[@]} == 0 )); then
        _narrows "$@"
        return
    fi
    # Readline replaces only what stands behind the last colon.
    if [[ "$typed" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        local before="${typed%"${typed##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
    [[ "${COMPREPLY[0]}" == *: || "$typed" == *,* ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _narrows_words -o nosort -o bashdefault -o default narrows
