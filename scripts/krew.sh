#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes of the programs nvtopo-linux-ARCH in OUT what Krew installs as kubectl nvtopo: an archive
# for each, kubectl-nvtopo-linux-ARCH.tar.gz, the same byte for byte each time, and the manifest
# nvtopo.krew.yaml that names their checksums.
#
# Usage: krew.sh OUT VERSION. URL is the folder from which the archives of VERSION will be fetched.
set -euo pipefail
out=$1
version=$2
url=${URL:-https://github.com/nvtopo/nvtopo/releases/download/$version}
license=$(cd "$(dirname "$0")/.." && pwd)/LICENSE
# Krew takes versions of this form only.
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || version=v0.0.0-$version

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/manifest" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nvtopo
spec:
  version: "$version"
  homepage: https://github.com/nvtopo/nvtopo
  shortDescription: Explain where GPU pods are, or why they wait
  description: |
    Shows how the GPUs of a cluster are linked and who holds them, explains why pods, gangs and
    jobs wait or where they are, tells where a pod would go, advises which pods to move, and checks
    that scheduler, kubelet and container agree. For clusters with the nvtopo scheduler; what
    concerns one machine needs no cluster.
  caveats: |
    For completion of what follows "kubectl nvtopo", make a link in a folder of PATH:
      ln -s "\$(command -v kubectl-nvtopo)" /usr/local/bin/kubectl_complete-nvtopo
  platforms:
EOF
count=0
for program in "$out"/nvtopo-linux-*; do
	arch=${program##*-linux-}
	[[ $arch =~ ^[a-z0-9]+$ ]] || continue # beside each is its bill of materials
	archive=kubectl-nvtopo-linux-$arch.tar.gz
	rm -rf "$work/files"
	mkdir "$work/files"
	install -m 755 "$program" "$work/files/kubectl-nvtopo"
	install -m 644 "$license" "$work/files/LICENSE"
	tar --create --directory "$work/files" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 LICENSE kubectl-nvtopo |
		gzip --no-name --best >"$out/$archive"
	sum=$(sha256sum "$out/$archive")
	cat >>"$work/manifest" <<EOF
    - selector:
        matchLabels:
          os: linux
          arch: $arch
      uri: $url/$archive
      sha256: ${sum%% *}
      bin: kubectl-nvtopo
EOF
	count=$((count + 1))
done
if ((count == 0)); then
	echo "krew: no nvtopo-linux-ARCH in $out" >&2
	exit 1
fi
mv "$work/manifest" "$out/nvtopo.krew.yaml"
