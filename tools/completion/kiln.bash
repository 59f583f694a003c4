# shellcheck shell=bash
# Completion of kiln's commands, options and values for bash. It asks the program that is being
# completed (`kiln --help`, `kiln COMMAND --help`), so that it knows what that program knows.
#
# Installed into bash-completion's folder; for an uninstalled tree: . tools/completion/kiln.bash

# The commands that a help text lists; of a group's, those of the group.
_kiln_commands() {
    "$1" "${@:2}" --help 2>/dev/null | sed -n -E -e '/^example:/q' \
        -e 's/^  kiln [a-z]+ ([a-z]+).*/\1/p' -e 's/^  ([a-z]+)  +[^ ].*/\1/p'
}

# A line for each option of a command: its spellings, then the word that stands for its value.
_kiln_options() {
    "$1" "${@:2}" --help 2>/dev/null | sed -n -E \
        's/^  (-[^ ,]+)(, (--?[a-z-]+))?( ([A-Z][^ ]*))?( .*)?$/\1 \3 =\5/p'
}

# What may stand behind an option that takes $1; prints nothing where it can be anything.
_kiln_values() {
    case $1 in
    FILE* | MODEL | OUT | IN) compgen -f -- "$2" ;;
    DIR) compgen -d -- "$2" ;;
    D) compgen -W 'auto cpu cuda sim' -- "$2" ;;
    STATE) compgen -W 'on off' -- "$2" ;;
    SLOT) compgen -W 'norm activation matmul' -- "$2" ;;
    esac
}

_kiln() {
    local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous='' word first second line
    local -a path=() words=()
    COMPREPLY=()
    [ "$COMP_CWORD" -lt 1 ] || previous=${COMP_WORDS[COMP_CWORD - 1]}
    # The command: one word, or two where the first is a group.
    if [ "$COMP_CWORD" -ge 2 ] && [[ ${COMP_WORDS[1]} != -* ]]; then
        path=("${COMP_WORDS[1]}")
        if [ "$COMP_CWORD" -ge 3 ] &&
            _kiln_commands "$program" "${path[0]}" | grep -qxF -e "${COMP_WORDS[2]}"; then
            path+=("${COMP_WORDS[2]}")
        fi
    fi
    if [ ${#path[@]} -eq 0 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_kiln_commands "$program") --help --version" -- "$current")
        return
    fi
    while read -r first second line; do
        if [ -z "$line" ]; then # one spelling
            line=$second
            second=''
        fi
        words+=("$first")
        [ -z "$second" ] || words+=("$second")
        if [ "$line" != = ] && { [ "$previous" = "$first" ] || [ "$previous" = "$second" ]; }; then
            mapfile -t COMPREPLY < <(_kiln_values "${line#=}" "$current")
            compopt -o filenames 2>/dev/null
            return
        fi
    done < <(_kiln_options "$program" "${path[@]}")
    if [ ${#path[@]} -eq 1 ] && [ "$COMP_CWORD" -eq 2 ]; then
        while read -r word; do
            words+=("$word")
        done < <(_kiln_commands "$program" "${path[0]}")
    fi
    # Options where a dash says so, and at the start, where names of files would hide them.
    if [[ $current == -* ]] || [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$current")
    fi
    if [ ${#COMPREPLY[@]} -eq 0 ] && [[ $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2>/dev/null
    fi
}

complete -F _kiln kiln
