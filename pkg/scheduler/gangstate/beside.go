// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// KeptOut returns the places on nodes that are kept from the members of a turn, for older gangs of no
// lower priority. It is nil if there are none.
func (t *Turn) KeptOut(closed *candidates.Closed) map[string][]*candidates.Kept {
	var out map[string][]*candidates.Kept
	for node := range closed.Kept() {
		if places := closed.KeptFromGang(t.Gang.Key.String(), t.Gang.Priority, t.Complete, node); len(places) > 0 {
			if out == nil {
				out = map[string][]*candidates.Kept{}
			}
			out[node] = places
		}
	}
	return out
}

// askedOf returns the resources of kept places that some member requests.
func askedOf(q *Question) map[v1.ResourceName]bool {
	kept := sets.New[v1.ResourceName]()
	for _, places := range q.Kept {
		for _, k := range places {
			kept.Insert(k.Resource)
		}
	}
	asked := map[v1.ResourceName]bool{}
	for _, pod := range q.Turn.Pods {
		if len(asked) == kept.Len() {
			break
		}
		d, err := q.Demand(pod)
		if err != nil {
			continue
		}
		for name := range kept {
			if candidates.AmountOf(d.Request, name) > 0 {
				asked[name] = true
			}
		}
	}
	return asked
}

// KeptFor returns for which gangs places are kept from the members of a question that has no room, and on
// how many nodes; "" if none are of resources that they request.
func KeptFor(q *Question) string {
	nodes, asked := map[string]int{}, askedOf(q)
	for _, places := range q.Kept {
		said := sets.New[string]()
		for _, k := range places {
			if asked[k.Resource] {
				said.Insert(k.For(q.Turn.Gang.Key.Namespace))
			}
		}
		for text := range said {
			nodes[text]++
		}
	}
	var whys []string
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		whys = append(whys, fmt.Sprintf("places on %s are kept for %s", roughly(nodes[text]), text))
	}
	if len(whys) > maxShort {
		whys = append(whys[:maxShort], "and more")
	}
	return strings.Join(whys, "; ")
}

// beside limits a node's supply by the places that are kept there from the members, in addition to used
// and reserved capacity. placed are members of other shapes, and the reservations of gone are ignored.
func (b *build) beside(s *shape, info fwk.NodeInfo, placed []nodestate.Placed, gone sets.Set[types.UID], supply fabric.Supply) fabric.Supply {
	places := b.q.Kept[info.Node().Name]
	if len(places) == 0 || b.q.Empty || supply.Slots == nil {
		return supply
	}
	most := int64(supply.Members())
	for _, k := range places {
		asks := candidates.AmountOf(s.Demand.Request, k.Resource)
		if asks == 0 {
			continue
		}
		free := candidates.AmountIn(info.GetAllocatable(), k.Resource) - candidates.AmountIn(info.GetRequested(), k.Resource) -
			b.p.supplier.ReservedBeside(info, k.Resource, gone)
		for _, o := range placed {
			free -= int64(o.Count) * candidates.AmountOf(o.Demand.Request, k.Resource)
		}
		for _, o := range places {
			if o.Resource == k.Resource {
				free -= o.Count
			}
		}
		most = min(most, free/asks)
	}
	supply.Limit = fabric.AtMost(int(max(0, most)))
	return supply
}
