
# Words of tc, interfaces and classes, which depend on this host.
function __narrows_words
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c narrows -n "__fish_seen_subcommand_from tc" -f -a "(__narrows_words)"
complete -c narrows -n "not __fish_seen_subcommand_from tc" -a "(__narrows_words)"
