#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of an earlier commit, for the tests of version skew:
#   scripts/build-release.sh REV DIR
# leaves them in DIR/bin, and that commit's manifests in DIR/manifests. What is
# there already is not built again. Needs a clone with history.
set -eu

rev=$1
dir=$2
fail() {
	echo "build-release: $1" >&2
	exit 1
}
commit=$(git rev-parse --quiet --verify "$rev^{commit}") || fail "no commit $rev here; a shallow clone needs git fetch --unshallow"
if [ "$(cat "$dir/commit" 2>/dev/null)" = "$commit" ]; then
	exit 0
fi
rm -rf "$dir"
mkdir -p "$dir/src" "$dir/bin"
git archive "$commit" | tar -x -C "$dir/src"
bin=$(cd "$dir/bin" && pwd)
ldflags="-X k8s.io/component-base/version.gitVersion=${KUBE_VERSION:?}+nvtopo.$(git describe --tags --always "$commit") -X k8s.io/component-base/version.gitCommit=$commit"
for program in scheduler exporter node-agent; do
	echo "building nvtopo-$program of $rev"
	go build -C "$dir/src" -ldflags "$ldflags" -o "$bin/nvtopo-$program" "./cmd/$program"
done
mv "$dir/src/manifests" "$dir/manifests"
# A package there would be one of this module's.
find "$dir/manifests" -name "*.go" -delete
rm -rf "$dir/manifests/testdata"
rm -rf "$dir/src"
# Last: a build that was cut short is done again.
echo "$commit" >"$dir/commit"
