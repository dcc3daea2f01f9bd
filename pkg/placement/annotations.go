// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// maxKeyName is the API server's limit on an annotation key after its slash; a container whose name is too
// long for its own key is found in allocation.Key.
const maxKeyName = 63

// Annotations returns the annotations of a pod for an allocation on node n (nil if the node is no longer
// known): the whole entry under allocation.Key and flat copies of its parts. aliases adds the keys of
// other systems. Link class and ring bandwidth are those of the pod's whole set, where one resource with
// at least two GPUs was chosen, at the time of the choice: a link that fails before the write does not
// change them. For an allocation that was read back they are those of the present graph.
func Annotations(a *allocation.Allocation, n *usage.Node, aliases bool) (map[string]string, error) {
	text, err := a.Encode()
	if err != nil {
		return nil, err
	}
	out := map[string]string{allocation.Key: text}
	if len(a.NUMANodes) > 0 {
		out[allocation.NUMANodeKey] = joinInts(a.NUMANodes)
		if aliases {
			out[allocation.NUMANodeAlias] = out[allocation.NUMANodeKey]
		}
	}
	if a.CPUSet != "" {
		out[allocation.CPUSetKey] = a.CPUSet
	}
	if len(a.Containers) == 0 {
		return out, nil
	}
	if n == nil {
		return nil, fmt.Errorf("the topology of node %s went away after the choice", a.Node)
	}
	return out, describeGPUs(out, a, n, aliases)
}

// describeGPUs adds the annotations about GPUs.
func describeGPUs(out map[string]string, a *allocation.Allocation, n *usage.Node, aliases bool) error {
	byContainer := map[string][]string{}
	links := a.Ring
	var indices []int
	var flat []string
	for _, c := range a.Containers {
		byContainer[c.Name] = append(byContainer[c.Name], c.GPUs...)
	}
	for _, accel := range n.Accels {
		ids := a.GPUs(accel.Resource)
		if len(ids) == 0 {
			continue
		}
		flat = append(flat, ids...)
		set, missing := accel.Graph.Positions(ids)
		if len(missing) > 0 {
			return fmt.Errorf("node %s lost GPU %s after the choice", a.Node, missing[0])
		}
		for p := range set.All() {
			indices = append(indices, accel.Graph.GPUs[p].Index)
		}
		if set.Len() > 1 && a.Ring == nil {
			links = ringOf(accel, set)
		}
	}
	if links != nil {
		out[allocation.LinkClassKey] = links.Class.String()
		out[allocation.RingBandwidthKey] = nvtopo.FormatGBps(links.Bandwidth)
	}
	slices.Sort(indices)
	out[allocation.GPUIndicesKey] = joinInts(indices)
	for name, ids := range byContainer {
		if key := allocation.GPUIDsKey + "." + name; len(key)-strings.IndexByte(key, '/')-1 <= maxKeyName {
			out[key] = strings.Join(ids, ",")
		}
	}
	if len(byContainer) == 1 {
		out[allocation.GPUIDsKey] = strings.Join(flat, ",")
		if aliases {
			out[allocation.GPUIDsAlias] = out[allocation.GPUIDsKey]
		}
	}
	return nil
}

func joinInts(v []int) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = strconv.Itoa(x)
	}
	return strings.Join(s, ",")
}
