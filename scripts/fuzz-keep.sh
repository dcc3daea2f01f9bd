#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Keeps what fuzzing found: of the inputs in Go's fuzz cache, those that reach code of
# their package that neither the seeds nor a smaller input reach go to testdata/fuzz,
# where every `go test` runs them again.
#
# Usage: fuzz-keep.sh [PATTERN]; PATTERN selects targets, as "package target".
set -euo pipefail
pattern=${1:-.}
largest=4096 # bytes of an input that is kept
most=200     # inputs of a target that are tried, the smallest
module=$(go list -m)
cache=$(go env GOCACHE)/fuzz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the blocks of code that a run of the tests reaches.
reached() {
	rm -f "$work/profile"
	(cd "$dir" && "$work/test" -test.run "$1" -test.coverprofile "$work/profile" >/dev/null 2>&1) || return 1
	awk 'NR > 1 && $NF > 0 { print $1 }' "$work/profile" | sort
}

while read -r dir; do
	built=
	while read -r target; do
		[[ "./$dir $target" =~ $pattern && -d $cache/$module/$dir/$target ]] || continue
		if [[ -z $built ]]; then
			go test -c -cover -o "$work/test" "./$dir"
			built=1
		fi
		reached "^$target\$" >"$work/all"
		kept=0
		mkdir -p "$dir/testdata/fuzz/$target"
		while read -r size file; do
			name=$(basename "$file")
			[[ $size -le $largest && ! -e $dir/testdata/fuzz/$target/$name ]] || continue
			cp "$file" "$dir/testdata/fuzz/$target/$name"
			if reached "^$target\$/^$name\$" >"$work/one" && [[ -n $(comm -13 "$work/all" "$work/one") ]]; then
				sort -u -o "$work/all" "$work/all" "$work/one"
				kept=$((kept + 1))
			else
				rm "$dir/testdata/fuzz/$target/$name"
			fi
		done < <(find "$cache/$module/$dir/$target" -type f -printf '%s %p\n' | sort -n | head -n "$most")
		rmdir --ignore-fail-on-non-empty -p "$dir/testdata/fuzz/$target"
		echo "./$dir $target: kept $kept"
	done < <(grep -hoE "^func Fuzz[A-Za-z0-9_]*" "$dir"/*_test.go | sed "s/^func //")
done < <(grep -rlE '^func Fuzz' pkg --include='*_test.go' | xargs -n1 dirname | sort -u)
