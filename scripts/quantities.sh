#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Narrows the pattern of quantities in a generated CRD, which controller-gen gives to
# every resource.Quantity and lets no marker change. It admits what cannot be read
# (1e1.5) and what takes minutes to read (1e-100000000): one such object made every
# list and watch of its kind fail, for all nodes.
set -euo pipefail
was='^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'
now='^[0-9]{1,19}(\.[0-9]{1,9})?(m|k|[KMGTPE]i|[MGTPE]|[eE]\+?[0-9]{1,2})?$'
text=$(<"$1")
printf '%s\n' "${text//"$was"/$now}" >"$1"
