// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// explain adds to the placed pods of an answer why each is on its node. It adds nothing if an object of
// the cluster cannot be read.
func (q *question) explain(a *whatif.Answer) {
	var placed []types.UID
	for i := range a.Pods {
		if a.Pods[i].Outcome == whatif.Placed && len(a.Pods[i].Devices) > 0 {
			placed = append(placed, q.asked.Pods[i].UID)
		}
	}
	if len(placed) == 0 || q.state == nil {
		return
	}
	w, err := q.world()
	if err != nil {
		return
	}
	why := explain.PlacedPods(w, placed)
	for i := range a.Pods {
		a.Pods[i].Why = why[q.asked.Pods[i].UID]
	}
}

// world returns the cluster for explain, once the pods of the question are placed.
func (q *question) world() (*explain.World, error) {
	w := &explain.World{Objects: clusterobjects.Objects{Now: time.Now()}}
	for _, kind := range []clusterobjects.Kind{
		clusterobjects.Nodes, clusterobjects.Pods, clusterobjects.Topologies, clusterobjects.ClusterTopologies, clusterobjects.Leases, clusterobjects.PodGroups,
	} {
		objects, _ := q.store.List(string(kind))
		for _, o := range objects {
			if err := w.AddJSON(kind, o.Raw); err != nil {
				return nil, err
			}
		}
	}
	var err error
	w.Profiles, err = explain.Published(&diagnosis.Profiles{Profiles: q.state.Profiles.Profiles()})
	return w, err
}
