#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Says why a part of the tests cannot run here. In make test and make test-all (NVTOPO_PARTS) the
# part is left out, and the reason is printed at the end; a part that was asked for by name fails.
#
# Usage: leave-out.sh PART REASON
set -eu
echo "$1: $2" >&2
[ "${NVTOPO_PARTS:-}" = 1 ] || exit 1
cd "$(dirname "$0")/.."
mkdir -p out/left-out
echo "$2" >"out/left-out/$1"
