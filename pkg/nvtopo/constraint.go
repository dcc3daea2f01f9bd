// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "fmt"

// Constraint is what a set must satisfy at all. The zero value asks for one
// model and nothing else. It is comparable.
type Constraint struct {
	Policy           Policy
	MinLink          Class // the worst class accepted between any two GPUs; ignored for one GPU
	MinBandwidth     int64 // kB/s of the ring bottleneck; ignored for one GPU
	AllowMixedModels bool
}

// Shortfall names the constraint that leaves no set. The constraints are added
// in the order of the values; the first that cannot be met is the shortfall.
type Shortfall uint8

// The shortfalls.
const (
	ShortNone      Shortfall = iota // there is a set
	ShortFree                       // fewer free GPUs than asked
	ShortModel                      // enough free GPUs, but not of one model
	ShortNUMA                       // not on as few NUMA nodes as the policy wants
	ShortLink                       // not all joined by links of the class asked
	ShortBandwidth                  // the best ring is slower than asked
)

var shortfallNames = [...]string{"none", "free GPUs", "one model", "NUMA policy", "link class", "ring bandwidth"}

// String returns a short English name for logs.
func (s Shortfall) String() string {
	if int(s) < len(shortfallNames) {
		return shortfallNames[s]
	}
	return fmt.Sprintf("Shortfall(%d)", uint8(s))
}
