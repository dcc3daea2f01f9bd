#!/usr/bin/env bash
# Has the code of each kubelet write the state files of its CPU and memory manager into
# pkg/nodeagent/kubelet/kubeletconf/testdata/VERSION. Needs the network; the files are committed.
#
# usage: scripts/kubelet-states.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/pkg/nodeagent/kubelet/kubeletconf/testdata
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(1.34.4 1.35.8 1.36.5 1.37.2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in "${versions[@]}"; do
	module=$work/$version
	mkdir -p "$module"
	cp "$out/write.go.txt" "$module/main.go"
	cd "$module"
	go mod init kubelet-states 2>/dev/null
	kubernetes=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	# Kubernetes replaces its own modules by folders that its module does not have.
	go mod edit -json "$kubernetes" | sed -n 's/.*"Path": "\(k8s\.io\/[a-z-]*\)",\{0,1\}$/\1/p' | sort -u | grep -v '^k8s.io/kubernetes$' |
		while read -r m; do
			grep -q "$m => ./staging" "$kubernetes" && go mod edit -replace "$m=$m@v0.${version#1.}" || true
		done
	go mod edit -require "k8s.io/kubernetes@v$version"
	go mod tidy 2>/dev/null
	rm -rf "${out:?}/$version"
	go run . "$out/$version"
done
