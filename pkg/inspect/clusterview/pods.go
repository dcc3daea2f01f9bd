// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// people says of pods what decides whether they may be moved.
type people struct {
	budgets *eviction.Budgets
}

func newPeople(o *clusterobjects.Objects) *people {
	p := &people{}
	var all []*policyv1.PodDisruptionBudget
	for i := range o.Budgets {
		all = append(all, &o.Budgets[i])
	}
	p.budgets = eviction.NewBudgets(all)
	return p
}

// holders are the pods that hold GPUs of a node, or are bound to it and ask for some.
func (g *people) holders(n *Node, pods usage.LivePods) []Pod {
	graph, tables := n.Graph(), n.Tables()
	var out []Pod
	here := map[string]bool{}
	for i := range pods {
		object := pods[i].Object
		here[string(object.UID)] = true
		alone := usage.Alone(&n.input, pods, i)
		set, counted := alone.Used[n.accel], alone.Counted[n.accel]
		lost := n.known.LostBy(n.accel, pods[i], n.input.Reader)
		if set == 0 && counted == 0 && lost.Len() == 0 {
			continue
		}
		pod := Pod{
			Namespace: object.Namespace, Name: object.Name, UID: object.UID, GPUs: indices(graph, set), Counted: counted,
			Gang: gangOf(object), Ring: ringOf(tables, set), Unmovable: g.unmovable(object, n.Name, counted), AbsentGPUs: lost.Absent, Replacement: replacementOf(object),
		}
		if lost.Len() > 0 {
			pod.Lost = lost.String()
		}
		out = append(out, pod)
	}
	for uid, records := range n.known.Records {
		var ids []string
		for _, r := range records {
			if r.Resource == n.known.Accels[n.accel].Resource {
				ids = append(ids, r.GPUs...)
			}
		}
		set, _ := graph.Positions(ids)
		if here[string(uid)] || set&n.used.Used[n.accel] == 0 { // a record that a dead agent left counts nothing
			continue
		}
		namespace, name, _ := strings.Cut(records[0].Pod, "/")
		out = append(out, Pod{
			Namespace: namespace, Name: cmp.Or(name, string(uid)), UID: uid, GPUs: indices(graph, set), Gone: true, Ring: ringOf(tables, set),
			Unmovable: "the pod is gone, and kubelet has yet to release its GPUs",
		})
	}
	sortPods(out)
	return out
}

// unplaced are the pods with GPUs of a node of which no graph is known.
func (g *people) unplaced(pods usage.LivePods, resource string) []Pod {
	var out []Pod
	for i := range pods {
		object := pods[i].Object
		if n := podrequest.BoundedCount(pods[i].Amounts().GetScalarResources()[v1.ResourceName(resource)]); n > 0 {
			out = append(out, Pod{
				Namespace: object.Namespace, Name: object.Name, UID: object.UID, GPUs: []int{}, Counted: n, Gang: gangOf(object),
				Unmovable: g.unmovable(object, object.Spec.NodeName, n),
			})
		}
	}
	sortPods(out)
	return out
}

func sortPods(pods []Pod) {
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

func gangOf(p *v1.Pod) string {
	if key, ok := gangrequest.KeyOf(p); ok {
		return key.String()
	}
	return ""
}

// unmovable is why nobody should be advised to move a pod; empty if it may be moved. counted is
// how many GPUs it has of which nobody knows which these are.
func (g *people) unmovable(p *v1.Pod, node string, counted int) string {
	_, err := allocation.Of(p, node)
	return g.budgets.Unmovable(p, err == nil && counted == 0)
}

// parse reads what a pod asks for under the shipped profile's defaults.
func parse(p *v1.Pod, resources []string) (*podrequest.Request, error) {
	return podrequest.Parse(p, &podrequest.Options{
		Resources: resources, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
	})
}
