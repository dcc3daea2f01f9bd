// SPDX-License-Identifier: Apache-2.0

package nodeindex

import "fmt"

// LeastBest is the least score of TopologyAware, of 100, of a node that is one of the best in reserve,
// preference and cost; all other nodes have 0.
const LeastBest = 80

// CheckWeight returns an error for a weight of TopologyAware with which the other scorers of a profile,
// whose weights sum up to others, could outvote the best links.
func CheckWeight(own, others int64) error {
	if own*LeastBest > others*100 {
		return nil
	}
	return fmt.Errorf("weight %d of TopologyAware: want %d or more, or the other plugins (weights %d in all) outvote the best links",
		own, others*100/LeastBest+1, others)
}
