#!/usr/bin/env bash
# Has the code of each kubelet write what tests compare with, into testdata/…/VERSION:
#   pkg/node/nodeagent/kubelet/kubeletconf   state files of its CPU and memory manager
#   pkg/nvtopo/kubeletadmission         what it makes of hints for devices
# Needs the network; the files are committed.
#
# usage: scripts/kubelet-golden.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(1.34.4 1.35.8 1.36.5 1.37.2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# module VERSION SOURCE makes a program of one kubelet's packages.
module() {
	rm -rf "${work:?}/program"
	mkdir "$work/program"
	cd "$work/program"
	cp "$2" main.go
	go mod init kubelet-golden 2>/dev/null
	local answer go_mod
	answer=$(go mod download -json "k8s.io/kubernetes@v$1") || {
		echo "$answer" >&2
		exit 1
	}
	go_mod=$(sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' <<<"$answer")
	kubernetes=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$answer")
	# Kubernetes replaces its own modules by folders that its module does not have.
	go mod edit -json "$go_mod" | sed -n 's/.*"Path": "\(k8s\.io\/[a-z-]*\)",\{0,1\}$/\1/p' | sort -u | grep -v '^k8s.io/kubernetes$' |
		while read -r m; do
			grep -q "$m => ./staging" "$go_mod" && go mod edit -replace "$m=$m@v0.${1#1.}" || true
		done
	go mod edit -require "k8s.io/kubernetes@v$1"
	go mod tidy
}

states=$root/pkg/node/nodeagent/kubelet/kubeletconf/testdata
hints=$root/pkg/nvtopo/kubeletadmission/testdata
for version in "${versions[@]}"; do
	module "$version" "$states/write.go.txt"
	rm -rf "${states:?}/$version"
	go run . "$states/$version"

	module "$version" "$hints/write.go.txt"
	# One file more in kubelet's package calls what it does not export.
	cp -R "$kubernetes" kubernetes
	chmod -R u+w kubernetes
	cp "$hints/export.go.txt" kubernetes/pkg/kubelet/cm/devicemanager/export_golden.go
	go mod edit -replace "k8s.io/kubernetes=./kubernetes"
	go run -mod=mod . "$hints/hints/$version"
done
