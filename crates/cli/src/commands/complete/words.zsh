# Words of tc, interfaces and classes, which depend on this host.
_narrows_words() {
    local -a found
    found=(${(f)"$(${words[1]} complete -- ${words[2,CURRENT]} 2>/dev/null)"})
    if (( ${#found} )); then
        compadd -- $found
    else
        _narrows "$@"
    fi
}

if [ "$funcstack[1]" = "_narrows" ]; then
    _narrows_words "$@"
else
    compdef _narrows_words narrows
fi
