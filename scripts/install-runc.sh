#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs runc, the one program of a real node that is not built from modules:
# it needs libseccomp and a C toolchain of its own, and every distribution has it.
set -eu

if command -v runc >/dev/null 2>&1; then
	exit 0
fi
fail() {
	echo "install-runc: $1" >&2
	echo "install-runc: a real node (make e2e, make demo-node) needs runc on PATH; SKIP_NODE=1 make test leaves it out" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || fail "not root, so the package cannot be installed"
command -v apt-get >/dev/null 2>&1 || fail "no apt-get here; install the package runc"
# A fresh image has no package lists; an old list may name versions that are gone.
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends runc >/dev/null; }
install || { apt-get update >/dev/null && install; } || fail "apt-get could not install runc"
