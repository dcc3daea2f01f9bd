// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "fmt"

// Constraint restricts the sets that may be picked. The zero value requires one model and nothing else.
// It is comparable.
type Constraint struct {
	Policy           Policy
	MinLink          Class // the worst class accepted between any two GPUs; ignored for one GPU
	MinBandwidth     int64 // kB/s of the ring bottleneck; ignored for one GPU
	AllowMixedModels bool
}

// Shortfall names the first constraint that leaves no set; constraints are applied in the order of the
// values.
type Shortfall uint8

// The shortfalls.
const (
	ShortNone      Shortfall = iota // there is a set
	ShortFree                       // fewer free GPUs than requested
	ShortModel                      // enough free GPUs, but not of one model
	ShortNUMA                       // not on as few NUMA nodes as the policy requires
	ShortLink                       // not all joined by links of the requested class
	ShortBandwidth                  // the best ring is slower than requested
)

var shortfallNames = [...]string{"none", "free GPUs", "one model", "NUMA policy", "link class", "ring bandwidth"}

// String returns a short English name for logs.
func (s Shortfall) String() string {
	if int(s) < len(shortfallNames) {
		return shortfallNames[s]
	}
	return fmt.Sprintf("Shortfall(%d)", uint8(s))
}
