// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
)

// maxNamed is the largest number of devices listed in a report; a report becomes an event.
const maxNamed = 8

// Escape is a container that requests GPUs that kubelet did not give it.
type Escape struct {
	PodUID         types.UID
	Namespace, Pod string
	Container      string
	Asked          []string // UUIDs if known, else as written; "all" if the node's GPUs are not known
	Given          []string // ids in kubelet's record
	Ways           []string // forms of the request
}

// String returns one sentence about the request.
func (e Escape) String() string {
	given := "none"
	if len(e.Given) > 0 {
		given = short(e.Given)
	}
	return fmt.Sprintf("asks for %s (%s); kubelet gave it %s", short(e.Asked), strings.Join(e.Ways, ", "), given)
}

func short(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + " and " + strconv.Itoa(len(names)-maxNamed) + " more"
}

// judge compares a container's request with kubelet's records. The container has escaped if it certainly
// requests a device that it was not given, or any device if it was given none.
func judge(w *wish, held []kubelet.Record, t *v1alpha1.NodeGPUTopology) (asked, given []string, escaped bool) {
	for _, r := range held {
		for _, id := range r.IDs {
			gpu, _, _ := strings.Cut(id, replicaMark)
			given = append(given, gpu)
		}
	}
	given = sorted(given)
	var known []v1alpha1.GPU
	if t != nil {
		known = t.Spec.GPUs
	}
	devices := make([]visible.Device, len(known))
	for i := range known {
		devices[i] = visible.Device{ID: known[i].ID, Index: int(known[i].Index)}
	}
	beyond := !w.empty() && len(given) == 0
	if w.all {
		for i := range known {
			asked = append(asked, known[i].ID)
			beyond = beyond || !slices.Contains(given, known[i].ID)
		}
		if len(known) == 0 {
			asked = append(asked, "all")
		}
	}
	for _, name := range w.names {
		ids, certain := visible.Resolve(name, devices, given)
		asked = append(asked, ids...)
		beyond = beyond || certain && slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(given, id) })
	}
	return sorted(asked), given, beyond
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}
