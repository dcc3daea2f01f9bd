#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `go build` that says how far it is: what links Kubernetes is downloaded and compiled
# for minutes the first time, and go build is silent.
#
# Usage: build.sh NAME FLAGS…: NAME is what is said to be built; FLAGS are go build's,
# -C DIR first, as there.
set -euo pipefail
name=$1
shift
chdir=()
if [ "$1" = -C ]; then
	chdir=("$1" "$2")
	shift 2
fi
every=10 # seconds between two lines
few=50   # packages that take seconds

# Counts the modules or packages that go names, one a line, and tells now and then.
# Everything else, errors above all, is passed on.
follow() {
	local what=$1 count=0 told=$SECONDS line
	while IFS= read -r line; do
		case $line in
		"go: downloading "*) ;;
		*[[:space:]]* | "")
			echo "$line"
			continue
			;;
		esac
		count=$((count + 1))
		if ((SECONDS - told >= every)); then
			told=$SECONDS
			echo "  $name: $count $what after $SECONDS s"
		fi
	done
}

# go list takes go build's flags, but no -o.
list=()
for arg in "$@"; do
	case ${skip:-}$arg in
	-o) skip=1 ;;
	1*) skip= ;;
	*) list+=("$arg") ;;
	esac
done
stale=$(go list "${chdir[@]}" -deps -f '{{if .Stale}}x{{end}}' "${list[@]}" 2> >(follow "modules downloaded" >&2) | awk '/x/ { n++ } END { print n + 0 }')
if ((stale > few)); then
	echo "building $name: $stale packages to compile; the next time it takes seconds" >&2
else
	echo "building $name" >&2
fi
go build "${chdir[@]}" -v "$@" 2>&1 | follow "of $stale packages" >&2
