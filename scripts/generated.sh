#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails when a generated file is not what `make generate` makes of its source today, and
# leaves the new one in its place.
set -euo pipefail
cd "$(dirname "$0")/.."
sums() { find pkg/apis -name 'zz_generated*' -print0 | sort -z | xargs -0 sha256sum; sha256sum manifests/crd/*_*.yaml; }
before=$(sums)
make --no-print-directory generate
if ! diff <(printf '%s\n' "$before") <(sums) | awk '/^>/ {print $3 ": was stale and is written anew"; stale = 1} END {exit stale}' >&2; then
	exit 1
fi
