#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the pages of the web view in the checkout DIR, and names the file that a program with them
# has in it. SKIP_UI=1 says that there are to be none, and prints nothing.
#
# Usage: pages.sh DIR
set -eu
dir=$1

[ "${SKIP_UI:-}" = 1 ] && exit 0
fail() {
	echo "pages: nvtopo would be released without the pages of the web view: $1; SKIP_UI=1 does that" >&2
	exit 1
}
"$dir/scripts/ui-tools.sh" >&2 || fail "what builds them is missing"
(cd "$dir/ui" && npm run --silent build) >&2 || fail "they cannot be built"
set -- "$dir"/ui/dist/assets/index-*.js
[ -s "$dir/ui/dist/index.html" ] && [ -s "$1" ] || fail "there are none in ui/dist"
basename "$1"
