#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the web view's front end is built with: Debian's nodejs and npm, and what
# ui/package-lock.json names. With the argument chromium also Debian's Chromium, for its tests.
# Exit codes: 0 all is there; 1 something else is wrong; 3 a package cannot be downloaded.
set -eu

fail() {
	code=$1
	echo "ui-tools: $2" >&2
	echo "ui-tools: make ui and make test-ui need Node.js 18.18 or newer, npm and Chromium; SKIP_UI=1 leaves them out" >&2
	exit "$code"
}

# A fresh image has no package lists; an old list may name versions that are gone.
install() {
	[ "$(id -u)" -eq 0 ] || fail 1 "not root, so these packages cannot be installed: $*"
	command -v apt-get >/dev/null 2>&1 || fail 1 "no apt-get here; install these packages: $*"
	echo "ui-tools: installing $*"
	DEBIAN_FRONTEND=noninteractive
	export DEBIAN_FRONTEND
	apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
		{ apt-get update >/dev/null 2>&1 && apt-get install -y --no-install-recommends "$@" >/dev/null; } ||
		fail 3 "apt-get could not install $*"
}

command -v node >/dev/null 2>&1 || install nodejs
command -v npm >/dev/null 2>&1 || install npm
if [ "${1:-}" = chromium ]; then
	[ -x "${CHROMIUM:-/usr/bin/chromium}" ] || install chromium
fi
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 18 || (a === 18 && b >= 18) ? 0 : 1)' ||
	fail 1 "node is $(node --version), which is too old"

cd "$(dirname "$0")/../ui"
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
	npm ci --no-audit --no-fund --loglevel=error || fail 3 "npm could not install the packages of ui/package-lock.json"
	cp package-lock.json node_modules/.installed-lock.json
fi
