# shellcheck shell=bash
# What the sessions with command-line clients have in common: each line names a command and what must be seen.
# A session calls `chapter`, `says`, `lacks` and `fails`, may define `cleanup`, and ends with `finish`.
# `work` is a directory of the session's own.

work=$(mktemp -d)
passed=0 failed=0

cleanup() { :; }
leave() {
    cleanup
    rm -rf "$work"
}
trap leave EXIT

chapter() { printf '\n# %s\n' "$*"; }

# judge OK TEXT COMMAND...: counts one check, and shows what went wrong.
judge() {
    local ok=$1 text=$2
    shift 2
    if [[ $ok == yes ]]; then
        passed=$((passed + 1))
        echo "ok $*"
    else
        failed=$((failed + 1))
        echo "FAILED $*"
        # shellcheck disable=SC2001  # every line
        sed 's/^/    /' <<<"$text"
    fi
}

# says WANTED COMMAND...: the command succeeds and its output matches the extended regular expression.
says() {
    local wanted=$1 output ok=no
    shift
    if output=$("$@" 2>&1) && grep -qE -- "$wanted" <<<"$output"; then ok=yes; fi
    judge "$ok" "wanted: $wanted"$'\n'"seen: $output" "$@"
}

# lacks UNWANTED COMMAND...: the command succeeds and no line matches.
lacks() {
    local unwanted=$1 output ok=no
    shift
    if output=$("$@" 2>&1) && ! grep -qE -- "$unwanted" <<<"$output"; then ok=yes; fi
    judge "$ok" "must not be seen: $unwanted"$'\n'"seen: $output" "$@"
}

# fails WANTED COMMAND...: the command fails and says so.
fails() {
    local wanted=$1 output ok=no
    shift
    if ! output=$("$@" 2>&1) && grep -qE -- "$wanted" <<<"$output"; then ok=yes; fi
    judge "$ok" "wanted a failure: $wanted"$'\n'"seen: $output" "$@"
}

finish() {
    printf '\n%d passed, %d failed\n' "$passed" "$failed"
    [[ $failed == 0 ]]
    exit
}
