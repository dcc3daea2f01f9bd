#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that HEAD can be released, and leaves in OUT what may be: programs, SBOMs,
# the plugin for Krew, SHA256SUMS. Each program is built twice, from two clones in different folders, the
# second time with an empty build cache; the results have to be equal byte for byte.
#
# Usage: release-check.sh OUT PROGRAM…
# VERSION and LDFLAGS are what `make build` stamps; SBOM is the path of cyclonedx-gomod. SKIP_UI=1
# leaves the pages of the web view out of nvtopo, and says so.
set -euo pipefail
out=$1
shift
: "${VERSION:?}" "${LDFLAGS:?}" "${SBOM:?}"
fail() {
	echo "release-check: $1" >&2
	exit 1
}

[[ $VERSION != *-dirty ]] || fail "the tree has changes that are not committed; a release is built from a commit"

# What the changelog says about a version. A heading alone says nothing.
notes() {
	awk -v heading="## [$1]" '/^## / { on = index($0, heading) == 1; next } on && /^- / { n++ } END { exit !n }' CHANGELOG.md
}
if tag=$(git describe --tags --exact-match 2>/dev/null); then
	[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "tag $tag is no version (docs/releases.md)"
	notes "${tag#v}" || fail "CHANGELOG.md has no entry for ${tag#v}"
	echo "changelog: has an entry for ${tag#v}"
else
	echo "changelog: not checked, since no tag is at this commit; $VERSION is no release"
fi

commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
one=$work/one two=$work/another/folder
mkdir "$work/another"
for clone in "$one" "$two"; do
	git clone --quiet --no-checkout . "$clone"
	git -C "$clone" checkout --quiet --detach "$commit"
done

# nvtopo has the pages of the web view in it, which git has not.
has_pages() { [[ " $* " == *" nvtopo "* ]]; }
if has_pages "$@"; then
	page=$(scripts/pages.sh "$one")
	[ "$page" = "$(scripts/pages.sh "$two")" ] || fail "the pages of the web view are not reproducible"
	[ -n "$page" ] || without="nvtopo was built WITHOUT the pages of the web view: SKIP_UI=1"
fi

# compile CLONE ARCH CC PROGRAM FILE. GOFLAGS of whoever builds must not count.
compile() {
	GOFLAGS= GOARCH=$2 CC=$3 CGO_ENABLED=1 \
		scripts/build.sh "$4 for $2" -C "$1" -trimpath -buildvcs=false -ldflags "$LDFLAGS" -o "$5" "./cmd/${4#nvtopo-}"
}

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)

check() {
	local arch=$1 cc=$2 program file second=$work/second
	shift 2
	for program in "$@"; do
		file=$out/$program-linux-$arch
		compile "$one" "$arch" "$cc" "$program" "$file"
		GOCACHE=$work/cache GOTMPDIR=$work/another compile "$two" "$arch" "$cc" "$program" "$second"
		cmp "$file" "$second" || fail "$program for $arch is not reproducible"
		"$SBOM" bin -json -std -noserial -notimestamp -version "$VERSION" -output "$file.cdx.json" "$file"
	done
}

host=$(go env GOHOSTARCH)
check "$host" "$(go env CC)" "$@"
for program in "$@"; do
	"$out/$program-linux-$host" --version | grep -qF "$VERSION" || fail "$program --version does not name $VERSION"
done

if has_pages "$@"; then
	grep -qaF -- "$page" "$out/nvtopo-linux-$host" || fail "nvtopo has no $page: it was built without the pages of the web view"
fi

cross=aarch64-linux-gnu-gcc
if [ "$host" = arm64 ]; then
	:
elif command -v $cross >/dev/null; then
	check arm64 $cross "$@"
else
	missing="arm64 was NOT built: no $cross here (Debian: gcc-aarch64-linux-gnu and libc6-dev-arm64-cross)"
fi

# The plugin, too, is made twice.
if [ -e "$out/nvtopo-linux-$host" ]; then
	scripts/krew.sh "$out" "$VERSION"
	cp "$out"/nvtopo.krew.yaml "$work/once"
	scripts/krew.sh "$out" "$VERSION"
	cmp "$work/once" "$out/nvtopo.krew.yaml" || fail "the archives for Krew are not reproducible"
fi

cd "$out"
sha256sum -- * >"$work/sums"
mv "$work/sums" SHA256SUMS
echo
echo "$VERSION: reproducible, with SBOM, in $out; $(go version), $(gcc -dumpfullversion) of gcc"
grep -v cdx.json SHA256SUMS
echo "${missing:-}"
echo "${without:-}"
