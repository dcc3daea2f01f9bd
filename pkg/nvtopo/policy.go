// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "fmt"

// Policy limits how many NUMA nodes the GPUs of one request may span.
type Policy uint8

// The policies, named after kubelet's Topology Manager policies.
const (
	PolicyBestEffort     Policy = iota // prefer few NUMA nodes; the zero value
	PolicyNone                         // no constraint either: the objective still prefers few nodes
	PolicyRestricted                   // no more nodes than this many GPUs need on the empty machine
	PolicySingleNUMANode               // one node
)

var policyNames = [...]string{"best-effort", "none", "restricted", "single-numa-node"}

// String returns the name used in pods.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// ParsePolicy parses a policy's name; "single-numa" is short for "single-numa-node".
func ParsePolicy(s string) (Policy, error) {
	if s == "single-numa" {
		return PolicySingleNUMANode, nil
	}
	for i, name := range policyNames {
		if name == s {
			return Policy(i), nil
		}
	}
	return PolicyBestEffort, fmt.Errorf("unknown topology policy %q, want one of none, best-effort, restricted, single-numa-node", s)
}
