#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target in turn and prints a table of what each did. A crash does
# not stop the others; its input is under the package's testdata/fuzz, to be kept
# as a regression seed, and the exit status is 1.
#
# Usage: fuzz.sh [TIME [PATTERN]]; PATTERN selects targets, as "package target".
set -uo pipefail
time=${1:-30s}
pattern=${2:-.}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
failed=0
rows=()
# Only files with a target are worth building a test binary of the package for.
while read -r dir; do
	package=./$dir
	while read -r target; do
		[[ "$package $target" =~ $pattern ]] || continue
		out=$log/$target.$(basename "$dir")
		echo "== $package $target" >&2
		crashes=0
		if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$package" >"$out" 2>&1; then
			crashes=1
			failed=1
			cat "$out" >&2
		fi
		# fuzz: elapsed: 9s, execs: 65538 (3693/sec), new interesting: 20 (total: 25)
		last=$(grep '^fuzz: elapsed: .* execs: ' "$out" | tail -1)
		execs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' <<<"$last")
		new=$(sed -n 's/.*new interesting: \([0-9]*\).*/\1/p' <<<"$last")
		total=$(sed -n 's/.*(total: \([0-9]*\)).*/\1/p' <<<"$last")
		seconds=$(sed -n 's/.*elapsed: \([^,]*\),.*/\1/p' <<<"$last")
		rows+=("| ${dir#pkg/} | $target | ${seconds:-?} | ${execs:-0} | ${new:-0} | ${total:-0} | $crashes |")
	done < <(grep -hoE "^func Fuzz[A-Za-z0-9_]*" "$dir"/*_test.go | sed "s/^func //")
done < <(grep -rlE '^func Fuzz' pkg internal --include='*_test.go' | xargs -n1 dirname | sort -u)
echo "| package | target | time | execs | new interesting | corpus | crashes |"
echo "|---|---|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
exit $failed
