#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes targets one after the other, up to the first that fails, and prints at the end how
# long each took and how much it computed.
#
# Usage: parts.sh TARGET…: TARGET& goes on beside those after it, up to where TARGET stands
# again.
set -uo pipefail
times=$(mktemp -d)
beside= # what goes on beside the others, and its process
pid=
rows=()
failed=0

# Makes a target; its real, user and system time are the line of a file.
part() {
	local TIMEFORMAT='%R %U %S'
	{ time "${MAKE:-make}" --no-print-directory "$1" 2>&3; } 3>&2 2>"$times/$1"
}

row() {
	rows+=("$(awk -v part="$1" '{ printf "%-24s %7.0f %7.0f", part, $1, $2 + $3 }' "$times/$2")")
}

finish() {
	if [ -n "$pid" ]; then
		kill -- "-$pid" 2>/dev/null
		wait "$pid"
		echo "== $beside, up to where it was ended"
		cat "$times/output"
	fi
	rm -rf "$times"
}
trap finish EXIT

begin=$SECONDS
for target; do
	case $target in
	*'&')
		beside=${target%&}
		echo "== $beside, beside what follows"
		set -m # a process group of its own, which ends as a whole
		part "$beside" >"$times/output" 2>&1 &
		pid=$!
		set +m
		continue
		;;
	"$beside")
		wait "$pid"
		failed=$?
		cat "$times/output"
		pid=
		row "$target, beside" "$target"
		;;
	*)
		echo "== $target"
		part "$target" || failed=$?
		row "$target" "$target"
		;;
	esac
	[ "$failed" -eq 0 ] || { echo "$target failed" >&2 && break; }
done
printf '\n%-24s %7s %7s\n' part 'wall s' 'CPU s'
printf '%s\n' "${rows[@]}"
printf '%-24s %7d\n' 'all' $((SECONDS - begin))
exit "$failed"
