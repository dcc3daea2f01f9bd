// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// Diagnoser reports the process's view of the cluster, for people and for checks. Nothing is decided from
// it.
type Diagnoser struct {
	config      Config
	clock       clock.PassiveClock
	lists       *FirstLists
	leader      *leader.Leader
	retries     *candidates.Retries
	index       *candidates.Index
	profiles    *Profiles
	cache       *NodeCache
	allocations *AllocationTable
	nominator   *Nominator
	gangs       atomic.Pointer[func() []diagnosis.Gang]
}

// Diagnose returns the process's whole current view. It takes each lock for a moment, so its parts may be
// of different moments; reservations are read first and the informers' pods after them, as for a
// scheduling cycle.
func (dg *Diagnoser) Diagnose(name string) *diagnosis.State {
	d := &diagnosis.State{
		Version: diagnosis.Version, Name: name, At: dg.clock.Now().UTC(), Synced: dg.lists.Synced(), Claims: dg.allocations.Dump(),
		RequestTimeout: metav1.Duration{Duration: dg.config.RequestTimeout},
	}
	d.Leader = dg.leader.Holder()
	if at := dg.allocations.swept.Load(); at != 0 {
		d.LastSweep = new(time.Unix(0, at).UTC())
	}
	d.Widened, d.Holds = dg.retries.Pods(), dg.nominator.NominatedReservations()
	if gangs := dg.gangs.Load(); gangs != nil {
		d.Gangs = (*gangs)()
	}
	d.Profiles = dg.profiles.Profiles()
	seen := dg.index.Seen()
	derived, heldBack := dg.derive(d.Claims), dg.cache.topologies.HeldBack()
	for name, x := range dg.cache.cells.all() {
		n := x.entry.Node()
		late, waits := heldBack[name]
		if n == nil && x.entry.Fault() == "" && !waits {
			continue
		}
		node := dg.diagnoseNode(name, x, n)
		node.Derived, node.Indexed = derived[name], freeByUUID(seen[&x.candidate])
		if waits {
			node.HeldBack = &late
		}
		d.Nodes = append(d.Nodes, node)
	}
	slices.SortFunc(d.Nodes, func(a, b diagnosis.Node) int { return cmp.Compare(a.Name, b.Name) })
	return d
}

// DiagnoseGangs sets the function that returns the known gangs.
func (dg *Diagnoser) DiagnoseGangs(fn func() []diagnosis.Gang) { dg.gangs.Store(&fn) }

func (dg *Diagnoser) diagnoseNode(name string, x *cell, n *usage.Node) diagnosis.Node {
	out := diagnosis.Node{Name: name, Revision: x.candidate.Revision.Load()}
	if u := x.usage.Load(); u != nil {
		out.Memo = describeUsage(u)
		out.Memo.Generation, out.Memo.Revision = u.Generation, u.Revision
		out.Memo.Current = u.Revision == out.Revision && u.Node == n
	}
	if n != nil {
		out.NodeUID, out.ResourceVersion = n.NodeUID, n.ResourceVersion
		out.ExporterUntil, out.AgentUntil = n.Exporter.Until(), n.Agent.Until()
		out.Offered = map[string][]string{}
		for _, a := range n.Accels {
			out.Offered[a.Resource] = uuids(a, a.Healthy)
		}
	}
	if dg.cache.listers.stores.nodes == nil {
		return out
	}
	node, err := dg.cache.listers.stores.nodes.Get(name)
	if err != nil {
		out.Why = "there is no such Node"
		return out
	}
	reason := dg.cache.topologies.CheckGraph(x.entry, n, node.UID)
	out.Counts, out.Why = reason == placement.Fits, reason.String()
	return out
}

// freeByUUID returns the GPUs that the index has as free, by resource.
func freeByUUID(seen candidates.Seen) map[string][]string {
	if seen.Topology == nil {
		return nil
	}
	out := map[string][]string{}
	for _, a := range seen.Topology.Accels {
		if free, ok := seen.Free[a.Resource]; ok {
			out[a.Resource] = uuids(a, free)
		}
	}
	return out
}

// derivation has the devices held on each node while derive computes them.
type derivation struct {
	held    map[string]map[string]bool // node -> UUID
	here    map[types.UID]bool         // pods that have a node
	counted map[string][]*v1.Pod       // node -> pods with untracked devices, or devices by kubelet's record
}

func (d *derivation) hold(node string, ids []string) {
	if d.held[node] == nil {
		d.held[node] = map[string]bool{}
	}
	for _, id := range ids {
		d.held[node][id] = true
	}
}

// derive computes which GPUs are used from the informer's pods, the given reservations and kubelet's
// record. It does so independently of computeUsage, which it is meant to check.
func (dg *Diagnoser) derive(reservations []diagnosis.Reservation) map[string]*diagnosis.Usage {
	if dg.cache.listers.stores.pods == nil {
		return nil
	}
	all, err := dg.cache.listers.stores.pods.List(labels.Everything())
	if err != nil { // the cache has not been started
		return nil
	}
	d := &derivation{held: map[string]map[string]bool{}, here: map[types.UID]bool{}, counted: map[string][]*v1.Pod{}}
	dg.derivePods(d, all, reservations)
	out := map[string]*diagnosis.Usage{}
	for name, x := range dg.cache.cells.all() {
		n := x.entry.Node()
		if n == nil {
			continue
		}
		alive := n.Enforced(dg.clock.Now())
		for uid, recs := range n.Records {
			if !d.here[uid] && !alive { // records of a dead agent for a pod that is gone are not used
				continue
			}
			for _, r := range recs {
				d.hold(name, r.GPUs)
			}
		}
		out[name] = d.usage(n)
	}
	return out
}

func (dg *Diagnoser) derivePods(d *derivation, all []*v1.Pod, reservations []diagnosis.Reservation) {
	isReserved := map[types.UID]bool{}
	for i := range reservations {
		d.hold(reservations[i].Node, reservations[i].GPUs)
		isReserved[reservations[i].UID] = true
	}
	for _, pod := range all {
		if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		d.here[pod.UID] = true
		if a := dg.cache.podDevices.allocationOf(pod, pod.Spec.NodeName); a != nil {
			for _, c := range a.Containers {
				d.hold(a.Node, c.GPUs)
			}
		} else if !isReserved[pod.UID] {
			d.counted[pod.Spec.NodeName] = append(d.counted[pod.Spec.NodeName], pod)
		}
	}
}

func (d *derivation) usage(n *usage.Node) *diagnosis.Usage {
	u := &diagnosis.Usage{Used: map[string][]string{}}
	for _, a := range n.Accels {
		var used nvtopo.Mask
		for i := range a.Graph.GPUs {
			if d.held[n.Name][a.Graph.GPUs[i].UUID] {
				used |= nvtopo.MaskOf(i)
			}
		}
		addUsage(u, a, used, countedGPUs(n, a.Resource, d.counted[n.Name]))
	}
	return u
}

// countedGPUs returns the number of GPUs of the pods that are untracked.
func countedGPUs(n *usage.Node, resource string, pods []*v1.Pod) int {
	total := 0
	for _, pod := range pods {
		q := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceName(resource)]
		total += max(0, int(q.Value())-usage.RecordedGPUs(n.Records[pod.UID], resource))
	}
	return total
}

// describeUsage describes a usage without the details that only its own cycle has.
func describeUsage(u *usage.Usage) *diagnosis.Usage {
	out := &diagnosis.Usage{Used: map[string][]string{}}
	for i, a := range u.Node.Accels {
		addUsage(out, a, u.Used[i], u.Counted[i])
	}
	return out
}

// addUsage adds the used devices of one resource.
func addUsage(d *diagnosis.Usage, a *usage.Accel, used nvtopo.Mask, counted int) {
	if used != 0 {
		d.Used[a.Resource] = uuids(a, used)
	}
	if counted > 0 {
		if d.Counted == nil {
			d.Counted = map[string]int{}
		}
		d.Counted[a.Resource] = counted
	}
}

func uuids(a *usage.Accel, set nvtopo.Mask) []string {
	out := []string{}
	for i := range set.All() {
		out = append(out, a.Graph.GPUs[i].UUID)
	}
	return out
}

// Reports returns one report for every node that has accelerators, according to its allocatable resources
// or to its graph. It is for metrics and reports; nothing is decided from it.
func (dg *Diagnoser) Reports() []topologies.Report {
	if dg.cache.listers.stores.nodes == nil {
		return nil
	}
	nodes, err := dg.cache.listers.stores.nodes.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing nodes failed")
		return nil
	}
	return dg.cache.topologies.Reports(nodes, dg.index.Resources())
}
