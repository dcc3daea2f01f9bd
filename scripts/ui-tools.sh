#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the web view's front end is built with: Debian's nodejs and npm, and what
# ui/package-lock.json names. With the argument chromium also Debian's Chromium, for its tests;
# with the argument present nothing of Debian's. The last line of output is what is missing.
# Exit codes: 0 all is there; 3 it cannot be had: a server cannot be reached, or installing needs
# root or is not wanted; 1 anything else is wrong.
set -eu

wanted=${1:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
	code=$1
	echo "the pages need Node.js 18.18 or newer and npm, and Chromium for their tests in a browser; SKIP_UI=1 leaves them out" >&2
	echo "$2" >&2
	exit "$code"
}

# Fails with what is in the log: with 3 if it is that a server cannot be reached, or not be trusted.
fail_by_log() {
	tail -n 20 "$log" >&2
	if grep -qE 'ENOTFOUND|EAI_AGAIN|ETIMEDOUT|SELF_SIGNED_CERT|UNABLE_TO_(GET|VERIFY)|ECONN(REFUSED|RESET|ABORTED)|EHOSTUNREACH|ENETUNREACH|Could not resolve|Temporary failure resolving|Could not connect|Connection (timed out|refused)' "$log"; then
		fail 3 "$1: the server cannot be reached or trusted"
	fi
	fail 1 "$1"
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get "$@" >>"$log" 2>&1; }

install() {
	[ "$wanted" != present ] || fail 3 "there is no $1"
	[ "$(id -u)" -eq 0 ] || fail 3 "there is no $1, and to install it needs root"
	command -v apt-get >/dev/null 2>&1 || fail 3 "there is no $1, and no apt-get to install it"
	echo "ui-tools: installing $1"
	# A fresh image has no package lists; an old list may name versions that are gone.
	apt install -y --no-install-recommends "$1" && return
	: >"$log"
	apt update && apt install -y --no-install-recommends "$1" || fail_by_log "apt-get could not install $1"
}

command -v node >/dev/null 2>&1 || install nodejs
command -v npm >/dev/null 2>&1 || install npm
if [ "$wanted" = chromium ]; then
	[ -x "${CHROMIUM:-/usr/bin/chromium}" ] || install chromium
fi
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 18 || (a === 18 && b >= 18) ? 0 : 1)' ||
	fail 3 "node is $(node --version), which is too old"

cd "$(dirname "$0")/../ui"
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
	: >"$log"
	# Programs of packages need not run for that: none is built here.
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$log" 2>&1 || fail_by_log "npm could not install the packages of ui/package-lock.json"
	cp package-lock.json node_modules/.installed-lock.json
fi
