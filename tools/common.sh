# shellcheck shell=bash
# What the scripts in tools/ and .ci/run share: where the tree is, how they speak, and how a build
# folder is brought into the state that they want. Sourced, never run. It knows nothing of packages
# (setup-debian) and models (fetch-model).
#
# Assumes bash with `set -euo pipefail`. Sets root, prog and log_dir.

# An empty environment (env -i, cron) has no PATH; an ordinary user's has no sbin, which dpkg wants.
export PATH="${PATH:-/usr/local/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
unset CDPATH # with it, cd prints where it went

root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
prog=${0##*/}
log_dir=$root/build-logs # beside the build folders and not in them: a wipe must not take the log

# Debian's own python, because python3-pip belongs to it: another one on PATH may have no pip.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

say() {
    printf '%s: %s\n' "$prog" "$*" >&2
}

# die STATUS TEXT...
die() {
    local status=$1
    shift
    say "$*"
    exit "$status"
}

# Prints the comment block at the top of the running script: --help and the file cannot disagree.
show_help() {
    sed -n '2,${/^#/!q;s/^# \{0,1\}//;p}' "$0"
}

# shell_quote WORD...: on one line, as they can be pasted into a shell; quoted only where needed.
shell_quote() {
    local word line=''
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9_./=:,@%+-]*) word="'${word//\'/\'\\\'\'}'" ;;
        esac
        line+=" $word"
    done
    printf '%s\n' "${line# }"
}

make_log_dir() {
    if ! mkdir -p -- "$log_dir" 2>/dev/null || [ ! -w "$log_dir" ]; then
        die 3 "cannot write to $log_dir: the checkout must be yours, its build folders go there too"
    fi
}

# loud_step NAME COMMAND...: shows what the command says on stderr as it comes and keeps it in the
# log. The command's stdout stays stdout. Ends the script when the command fails.
loud_step() {
    local name=$1 log status=0
    shift
    make_log_dir
    log=$log_dir/$prog-$name.log
    { "$@" 2>&1 >&3 | tee -- "$log" >&2; } 3>&1 || status=$?
    [ "$status" -eq 0 ] || die "$status" "step '$name' failed (exit $status); the log is $log"
}

# quiet_step NAME COMMAND...: the output goes to the log alone; its end is shown when it fails.
# The command's failure is returned, for a caller that has more to do, after it has been told.
quiet_step() {
    local name=$1 log status=0
    shift
    make_log_dir
    log=$log_dir/$prog-$name.log
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [ "$status" -eq 0 ] && return 0
    tail -n 30 -- "$log" | sed 's/^/    /' >&2
    say "step '$name' failed (exit $status); the whole log is $log"
    return "$status"
}

# Settings that a build folder must have are given as KEY=VALUE, or as KEY=VALUE|OTHER where a
# developer's choice of OTHER is as good.

# build_state DIR KEY=VALUE...: prints "fresh", "ok", "reconfigure KEY=VALUE...", or "wipe REASON".
# Meson itself notices none of this: a copied folder goes on building the tree that it came from.
build_state() {
    "$python" - "$root" "$@" <<'PY'
import json, os, sys

root, build, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]


def load(name):
    with open(os.path.join(build, "meson-info", name), encoding="utf-8") as file:
        return json.load(file)


def state():
    if not os.path.isdir(os.path.join(build, "meson-private")):
        return "fresh"
    try:
        where = load("meson-info.json")["directories"]
        options = {o["name"]: o["value"] for o in load("intro-buildoptions.json")}
        for name in ("build.ninja", "meson-private/coredata.dat"):
            if os.path.getsize(os.path.join(build, name)) == 0:
                return "wipe it is damaged (%s is empty)" % name
    except (OSError, ValueError, KeyError, TypeError) as error:
        return "wipe it is damaged or half made (%s)" % error
    for made_for, here in ((where["source"], root), (where["build"], build)):
        if os.path.realpath(made_for) != os.path.realpath(here):
            return "wipe it was configured for " + made_for
    differ = []
    for pair in wanted:
        key, value = pair.split("=", 1)
        have = options.get(key)
        have = str(have).lower() if isinstance(have, bool) else str(have)
        if have not in value.split("|"):
            differ.append(key + "=" + value.split("|")[0])
    return "reconfigure " + " ".join(differ) if differ else "ok"


print(state())
PY
}

# set_options VARIABLE KEY=VALUE...: the array VARIABLE gets them as Meson's -D words.
set_options() {
    local -n words=$1
    shift
    words=("${@/#/-D}")
    words=("${words[@]%%|*}")
}

# Throws the folder's content away and configures it again; what a developer set with -D is kept
# where Meson can still read it.
wipe_build() {
    local dir=$1
    local -a options
    shift
    set_options options "$@"
    meson setup --wipe "${options[@]}" "$dir" "$root" && return 0
    rm -rf -- "$dir" || return
    meson setup "${options[@]}" "$dir" "$root"
}

# configure_build DIR KEY=VALUE...: afterwards DIR is configured for this checkout with these
# options; others stay as they are.
configure_build() {
    local dir=$1 state
    local -a options
    shift
    set_options options "$@"
    state=$(build_state "$dir" "$@") || return
    case $state in
    ok) ;;
    fresh) meson setup "${options[@]}" "$dir" "$root" ;;
    reconfigure*)
        # Said, because the folder may be a developer's own. fd 4 is the terminal, see build_tree.
        say "${dir##*/}/ has other settings; setting ${state#reconfigure }" 2>&4
        # Two steps: setup --reconfigure alone forgets some of them in Meson 1.0 (b_sanitize).
        { meson configure "$dir" "${options[@]}" && meson setup --reconfigure "$dir" "$root"; } ||
            wipe_build "$dir" "$@"
        ;;
    *)
        say "${dir##*/}/ is made anew: ${state#wipe }" 2>&4
        wipe_build "$dir" "$@"
        ;;
    esac
}

# What quiet_step runs for build_tree. A stale folder shows itself only when ninja runs: its files
# name a compiler or a Meson that has gone. That is no compile error, and a wipe mends it.
configure_and_compile() {
    local dir=$1 status=0 try=$log_dir/$prog-ninja.txt
    shift
    configure_build "$dir" "$@" || return
    ninja -C "$dir" >"$try" 2>&1 || status=$?
    cat -- "$try"
    if [ "$status" -ne 0 ] &&
        grep -qE '^ninja: (error|fatal)|^FAILED: build\.ninja|: not found$' -- "$try"; then
        say "${dir##*/}/ is stale; it is made anew" 2>&4
        wipe_build "$dir" "$@" || return
        status=0
        ninja -C "$dir" || status=$?
    fi
    rm -f -- "$try"
    return "$status"
}

# build_tree NAME DIR KEY=VALUE...: DIR (absolute) is configured and built; NAME is the step's. One
# build at a time in a checkout, for ninja takes no lock of its own.
build_tree() {
    local name=$1 status=0
    shift
    make_log_dir
    exec 8>"$log_dir/lock" 4>&2
    if command -v flock >/dev/null && ! flock -n 8; then
        say "waiting for another build in this checkout"
        flock 8
    fi
    quiet_step "$name" configure_and_compile "$@" || status=$?
    exec 8>&- 4>&-
    return "$status"
}
