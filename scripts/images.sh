#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs as they are in container images, and the images: OCI layouts and bills of
# materials in OUT. Programs are static but for the exporter, which opens NVIDIA's library and so
# needs a C library; for another architecture it needs a cross compiler too, and without one is left
# out there.
#
# Usage: images.sh OUT
# VERSION and LDFLAGS are what `make build` stamps; ARCHS, REGISTRY and TAG are those of the images.
# Without the pages of the web view it makes none, unless SKIP_UI=1 says so.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
: "${VERSION:?}" "${LDFLAGS:?}" "${ARCHS:?}" "${TAG:?}"

if [ ! -e ui/dist/index.html ] && [ "${SKIP_UI:-}" != 1 ]; then
	echo "images: nvtopo would have no pages of the web view: make ui builds them, SKIP_UI=1 leaves them out" >&2
	exit 1
fi

compiler() {
	if [ "$1" = "$(go env GOHOSTARCH)" ]; then
		go env CC
	elif [ "$1" = arm64 ]; then
		command -v aarch64-linux-gnu-gcc
	else
		command -v x86_64-linux-gnu-gcc
	fi
}

compile() {
	GOFLAGS= GOARCH=$1 CGO_ENABLED=$3 scripts/build.sh "$2 for $1" -trimpath -buildvcs=false -ldflags "$LDFLAGS -s -w" \
		-o "$out/programs/linux-$1/$2" "./cmd/${2#nvtopo-}"
}

rm -rf "$out"
mkdir -p "$out"
for arch in $ARCHS; do
	for program in nvtopo-scheduler nvtopo-node-agent nvtopo-pool-controller nvtopo; do
		compile "$arch" $program 0
	done
	if cc=$(compiler "$arch"); then
		CC=$cc compile "$arch" nvtopo-exporter 1
	else
		missing="nvtopo-exporter for $arch was NOT built: no cross compiler here (Debian: gcc-aarch64-linux-gnu and libc6-dev-arm64-cross)"
	fi
done
out=$(cd "$out" && pwd)
go run -C tools/images . --programs "$out/programs" --out "$out" --registry "${REGISTRY:-}" --tag "$TAG" \
	--version "$VERSION" --revision "$(git rev-parse HEAD)" --time "$(git log -1 --format=%ct)"
echo "${missing:-}"
[ -e ui/dist/index.html ] || echo "nvtopo was built WITHOUT the pages of the web view: make ui builds them"
