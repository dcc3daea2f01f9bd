#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `go test` through gotestsum, which records the run in out/tests/NAME.json: make test-all counts
# from it. With -again a test that failed is tried up to two times more; one that passes then is
# a flake, and its first output is in out/flakes. Violations, panics and data races stay failures.
#
# A package may take an hour: what hangs is found, and what is slow is not red.
#
# Usage: gotest.sh [-again] [-format FORMAT] NAME PACKAGES FLAGS…: PACKAGES is one word; FLAGS are
# go test's. It runs in the module of the folder that it is called in.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
again=()
format=pkgname
while :; do
	case $1 in
	-again) again=(--rerun-fails=2 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race) && shift ;;
	-format) format=$2 && shift 2 ;;
	*) break ;;
	esac
done
name=$1 packages=$2
shift 2
mkdir -p "$root/out/tests"
record=$root/out/tests/$name.json
"$root/bin/gotestsum" --format "$format" --format-hide-empty-pkg --no-color --jsonfile "$record" "${again[@]}" \
	--packages="$packages" -- -timeout 60m "$@"
code=$?
go run -C "$root" ./internal/testparts judge -flakes "$root/out/flakes" "$record" || code=1
exit "$code"
