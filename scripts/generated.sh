#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails when a generated file is not what `make generate` makes of its source today. The
# tree is left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find pkg/apis -name 'zz_generated*' | sort; ls manifests/{crd,pools}/*_*.yaml docs/reference/{topology,pool,config}.md)
old=$(mktemp -d)
trap 'cp -r "$old"/. . && rm -r "$old"' EXIT
cp --parents "${files[@]}" "$old"
make --no-print-directory generate
stale=0
for f in "${files[@]}"; do
	cmp -s "$f" "$old/$f" || { echo "$f is stale: run make generate" >&2; stale=1; }
done
exit "$stale"
