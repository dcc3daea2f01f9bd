// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// drawn is how many refusals are drawn.
	drawn = 600
	// maxSteps bounds the next steps that are followed until the pod fits: a node may lack several things.
	maxSteps = 8
)

// TestRefusals: of refusals that are drawn at random, the cause that is said is of the kind that a brute force
// finds, and a pod for which the next steps are followed is placed.
func TestRefusals(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 3))
	said := map[Cause]int{}
	for round := range drawn {
		w := refusal(t, random)
		var steps []string
		for !w.takes(t) {
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			said[e.Cause]++
			step := fmt.Sprintf("%s: %s. Next: %s", e.Cause, e.Reason, e.Next)
			if slices.Contains(steps, step) || len(steps) == maxSteps {
				t.Fatalf("round %d: %v: the steps lead nowhere:\n%s\n%s", round, w.pod("asks").Annotations, strings.Join(steps, "\n"), step)
			}
			steps = append(steps, step)
			if got, want := kindOf(e.Cause), w.kinds(t); !slices.Contains(want, got) {
				t.Fatalf("round %d: %s GPUs with %v: said is that %s would do, and the brute force says %v:\n%s", round, w.asked(), w.pod("asks").Annotations, got, want, strings.Join(steps, "\n"))
			}
			w.follow(t, e)
			if kindOf(e.Cause) == byLeaving && !w.takes(t) {
				t.Fatalf("round %d: the pods that are named have gone, and no node takes the pod:\n%s", round, strings.Join(steps, "\n"))
			}
		}
	}
	t.Logf("causes: %v", said)
	for _, c := range []Cause{
		OtherScheduler, SchedulingGated, VolumeMissing, VolumeUnbound, Unreadable, StaleGraph, "NoGraph", Cordoned, Tainted, NotReady, NotSelected, NoNodes, NeverFits, "UnhealthyGPUs",
		Fragmented, FewGPUs, FewCPUs, LowMemory, TooManyPods, "FewLinked", "LowBandwidth", "FewInNUMA",
	} {
		if said[c] == 0 {
			t.Errorf("no refusal of %d was for %s", drawn, c)
		}
	}
}

// The kinds of causes, by what would mend them, in the order in which they are looked for.
const (
	byObject   = "a change of the pod's own objects" // the scheduler does not look at the pod
	byRepair   = "a repair of nodes"
	byLeaving  = "pods that leave"
	byOpening  = "opening nodes"
	bySelector = "another node selector"
	byAsking   = "asking for something else"
	byNodes    = "more nodes"
)

// kindsOf are the kinds of causes that are not mended by pods that leave.
var kindsOf = map[Cause]string{
	OtherScheduler: byObject, SchedulingGated: byObject, VolumeMissing: byObject, VolumeUnbound: byObject, Unreadable: byObject,
	StaleGraph: byRepair, "NoGraph": byRepair, "UnhealthyGPUs": byRepair, Cordoned: byOpening, Tainted: byOpening, NotReady: byOpening,
	NotSelected: bySelector, NeverFits: byAsking, NoNodes: byNodes,
}

func kindOf(c Cause) string { return cmp.Or(kindsOf[c], byLeaving) }

// kinds finds what would mend the refusal, by trying it: the first that does, or each part of what does
// together.
func (e *testEnv) kinds(t *testing.T) []string {
	t.Helper()
	if !e.looked(e.pod("asks")) {
		return []string{byObject}
	}
	if len(e.Nodes) == 0 {
		return []string{byNodes}
	}
	var unknown []string
	for i := range e.lost { // without a graph, what such a node has is not known
		if allows(e.object(e.lost[i].Name), e.pod("asks")) {
			unknown = []string{byRepair}
		}
	}
	repair, empty, heal, open, selectAll := (*testEnv).repair, (*testEnv).empty, (*testEnv).heal, (*testEnv).open, (*testEnv).selectAll
	for _, x := range []struct {
		changes []func(*testEnv)
		kinds   []string
	}{
		{[]func(*testEnv){repair}, []string{byRepair}},
		{[]func(*testEnv){empty}, []string{byLeaving}},
		{[]func(*testEnv){repair, empty}, []string{byRepair}},
		{[]func(*testEnv){heal, repair, empty}, []string{byRepair}},
		{[]func(*testEnv){heal, open, repair, empty}, []string{byOpening}},
		{[]func(*testEnv){heal, selectAll, repair, empty}, []string{bySelector}},
		{[]func(*testEnv){heal, selectAll, open, repair, empty}, []string{bySelector, byOpening}},
	} {
		c := e.copied()
		for _, change := range x.changes {
			change(c)
		}
		if c.takes(t) {
			return append(unknown, x.kinds...)
		}
	}
	return append(unknown, byAsking)
}

// copied is a copy of what the changes change.
func (e *testEnv) copied() *testEnv {
	w := *e.World
	w.Nodes, w.Pods, w.Leases, w.Topologies = nil, nil, nil, nil
	for i := range e.Topologies {
		w.Topologies = append(w.Topologies, *e.Topologies[i].DeepCopy())
	}
	for i := range e.Nodes {
		w.Nodes = append(w.Nodes, *e.Nodes[i].DeepCopy())
	}
	for i := range e.Pods {
		w.Pods = append(w.Pods, *e.Pods[i].DeepCopy())
	}
	for i := range e.Leases {
		w.Leases = append(w.Leases, *e.Leases[i].DeepCopy())
	}
	return &testEnv{World: &w, graphs: e.graphs, lost: e.lost}
}

// repair has all exporters publish.
func (e *testEnv) repair() {
	for i := range e.Leases {
		e.Leases[i].Spec.RenewTime = new(metav1.NewMicroTime(now))
	}
	e.Topologies = append(e.Topologies, e.lost...)
	e.lost = nil
}

// heal has all GPUs of nodes that publish a graph be healthy, and kubelet offer them.
func (e *testEnv) heal() {
	for i := range e.Topologies {
		e.Topologies[i].Status.GPUHealth = nil
	}
	for i := range e.Nodes {
		e.Nodes[i].Status.Allocatable[gpu] = *resource.NewQuantity(int64(e.graphs[e.Nodes[i].Name].Len()), resource.DecimalSI)
	}
}

// fail has a GPU of a node be unhealthy, and kubelet offer one less.
func (e *testEnv) fail(name string, position int) {
	t := e.topology(name)
	for i := range t.Status.GPUHealth {
		if h := &t.Status.GPUHealth[i]; h.ID == t.Spec.GPUs[position].ID {
			h.Healthy, h.Reason = false, "Xid 79"
		}
	}
	n := e.object(name)
	offers := n.Status.Allocatable[gpu]
	n.Status.Allocatable[gpu] = *resource.NewQuantity(offers.Value()-1, resource.DecimalSI)
}

// empty removes all pods but the one that asks.
func (e *testEnv) empty() {
	e.Pods = slices.DeleteFunc(e.Pods, func(p v1.Pod) bool { return p.Name != "asks" })
}

// open has all nodes take pods.
func (e *testEnv) open() {
	for i := range e.Nodes {
		e.Nodes[i].Spec.Unschedulable, e.Nodes[i].Spec.Taints = false, nil
	}
}

func (e *testEnv) selectAll() { e.pod("asks").Spec.NodeSelector = nil }

// looked reports whether the scheduler looks at the pod at all.
func (e *testEnv) looked(p *v1.Pod) bool {
	if p.Spec.SchedulerName != "topology-aware-scheduler" || len(p.Spec.SchedulingGates) > 0 {
		return false
	}
	if _, ok := constraintOf(p); !ok {
		return false
	}
	for _, v := range p.Spec.Volumes {
		if !slices.ContainsFunc(e.Claims, func(c v1.PersistentVolumeClaim) bool {
			return c.Name == v.PersistentVolumeClaim.ClaimName && c.Status.Phase == v1.ClaimBound
		}) {
			return false
		}
	}
	return true
}

// constraintOf reads the annotations that are drawn; ok is false if one cannot be read.
func constraintOf(p *v1.Pod) (c nvtopo.Constraint, ok bool) {
	ok = true
	for key, value := range p.Annotations {
		var err error
		switch key {
		case podrequest.MinLinkKey:
			c.MinLink, err = nvtopo.ParseClass(value)
		case podrequest.MinBandwidthKey:
			var gbps float64
			gbps, err = strconv.ParseFloat(strings.TrimSuffix(value, "GB/s"), 64)
			c.MinBandwidth = int64(gbps * 1e6)
		case podrequest.TopologyPolicyKey:
			c.Policy, err = nvtopo.ParsePolicy(value)
		}
		ok = ok && err == nil
	}
	return c, ok
}

// takes reports whether some node takes the pod that asks, by the objects alone and all sets of GPUs.
func (e *testEnv) takes(t *testing.T) bool {
	t.Helper()
	p := e.pod("asks")
	c, _ := constraintOf(p)
	if !e.looked(p) {
		return false
	}
	for i := range e.Nodes {
		n := &e.Nodes[i]
		if !allows(n, p) || !e.publishes(n.Name) {
			continue
		}
		cpu, memory, pods := n.Status.Allocatable.Cpu().MilliValue(), n.Status.Allocatable.Memory().Value(), n.Status.Allocatable.Pods().Value()
		g := e.graphs[n.Name]
		free := nvtopo.FullMask(g.Len())
		for j := range e.Pods {
			other := &e.Pods[j]
			if other.Spec.NodeName == n.Name || other == p {
				cpu -= other.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
				memory -= other.Spec.Containers[0].Resources.Requests.Memory().Value()
				pods--
			}
			if a, err := allocation.Of(other, n.Name); err == nil && a != nil {
				free &^= a.Mask(gpu, g)
			}
		}
		asked := p.Spec.Containers[0].Resources.Requests[gpu]
		if t := e.topology(n.Name); t != nil {
			for at := range t.Spec.GPUs {
				if slices.ContainsFunc(t.Status.GPUHealth, func(h topologyv1alpha1.GPUHealth) bool { return h.ID == t.Spec.GPUs[at].ID && !h.Healthy }) {
					free &^= nvtopo.MaskOf(at)
				}
			}
		}
		_, ok := oracle.Best(g, free, nvtopo.FullMask(g.Len()), int(asked.Value()), c)
		if ok && cpu >= 0 && memory >= 0 && pods >= 0 {
			return true
		}
	}
	return false
}

// allows reports whether a node is open to the pod.
func allows(n *v1.Node, p *v1.Pod) bool {
	for key, value := range p.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	for _, taint := range n.Spec.Taints {
		if !slices.ContainsFunc(p.Spec.Tolerations, func(o v1.Toleration) bool { return o.Key == taint.Key }) {
			return false
		}
	}
	return !n.Spec.Unschedulable
}

// publishes reports whether a node has a graph that counts.
func (e *testEnv) publishes(name string) bool {
	for i := range e.Leases {
		if l := &e.Leases[i]; l.Name == nodelease.ExporterPrefix+name {
			return e.topology(name) != nil && l.Spec.RenewTime.Equal(new(metav1.NewMicroTime(now)))
		}
	}
	return false
}

// refusal draws a cluster of up to four nodes, and a pod that probably no node takes.
func refusal(t *testing.T, random *rand.Rand) *testEnv {
	t.Helper()
	w := newTestEnv()
	kinds := []string{cube, hopper, "a100-pcie-4-bridged", quad}
	gpus := []int{1, 2, 4, 8, 12}[random.IntN(5)]
	p := pod("asks", gpus).CPU(strconv.Itoa(1 + random.IntN(8))).Memory("8Gi")
	if wishes := randomConstraint(random); random.IntN(2) == 0 {
		p = p.Annotations(wishes)
	}
	what := random.IntN(30) // from 15 on GPUs are held, from 26 on some are broken
	if what > 18 {          // and what is asked could be had if they were not
		kinds = []string{cube}
		p = pod("asks", 3+random.IntN(2)).Annotations([]map[string]string{
			{podrequest.TopologyPolicyKey: "single-numa-node"}, {podrequest.MinBandwidthKey: "25"}, {podrequest.MinLinkKey: "NVLINK"},
		}[random.IntN(3)])
	}
	asks := p.Obj()
	for i := range random.IntN(5) {
		name := fmt.Sprint("n", i)
		w.node(t, name, kinds[random.IntN(len(kinds))], nil)
		w.fault(t, random, name, what)
	}
	w.objectFault(random, asks, what)
	w.waits(asks)
	return w
}

// randomConstraint are annotations about links and NUMA nodes.
func randomConstraint(random *rand.Rand) map[string]string {
	out := randomWishes(random)
	delete(out, podrequest.GPUModelKey)
	delete(out, podrequest.MinGPUMemoryKey)
	return out
}

// fault makes that a node probably does not take the pod, mostly for the cause that is drawn for the cluster.
func (e *testEnv) fault(t *testing.T, random *rand.Rand, name string, what int) {
	t.Helper()
	n := e.object(name)
	if random.IntN(4) == 0 {
		what = random.IntN(9)
	}
	switch what {
	case 0:
		n.Spec.Unschedulable = true
	case 1:
		n.Spec.Taints = []v1.Taint{{Key: "team", Value: "vision", Effect: v1.TaintEffectNoSchedule}}
	case 2:
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
	case 3:
		e.silence(name)
	case 4:
		i := slices.IndexFunc(e.Topologies, func(x topologyv1alpha1.NodeGPUTopology) bool { return x.Name == name })
		e.lost = append(e.lost, e.Topologies[i])
		e.Topologies = slices.Delete(e.Topologies, i, i+1)
	case 5:
		hog := testobj.Pod("hog-" + name).Namespace("team").UID("uid-hog-" + name).Node(name).Phase(v1.PodRunning).CPU("60").Memory("1Gi").Obj()
		hog.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("63500m")
		e.waits(hog)
	case 6:
		e.waits(testobj.Pod("hog-" + name).Namespace("team").UID("uid-hog-" + name).Node(name).Phase(v1.PodRunning).CPU("1").Memory("508Gi").Obj())
	case 7:
		e.waits(testobj.Pod("hog-" + name).Namespace("team").UID("uid-hog-" + name).Node(name).Phase(v1.PodRunning).CPU("1").Memory("1Gi").Obj())
		n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1")
	case 26, 27, 28, 29:
		for _, position := range random.Perm(e.graphs[name].Len())[:1+random.IntN(e.graphs[name].Len())] {
			e.fail(name, position)
		}
		if what > 27 {
			e.occupy(t, random, name)
		}
	default:
		e.occupy(t, random, name)
	}
}

// occupy gives GPUs of a node to pods.
func (e *testEnv) occupy(t *testing.T, random *rand.Rand, name string) {
	t.Helper()
	free := random.Perm(e.graphs[name].Len())
	left := random.IntN(len(free))
	for n := 0; len(free) > left; n++ {
		k := 1 + random.IntN(min(len(free), 4))
		e.holds(t, fmt.Sprintf("%s-%d", name, n), name, free[:k]...)
		free = free[k:]
	}
}

// objectFault makes that the scheduler does not look at the pod, or that it asks for other nodes.
func (e *testEnv) objectFault(random *rand.Rand, p *v1.Pod, what int) {
	claim := v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}
	switch what {
	case 9:
		p.Spec.SchedulerName = "nobody"
	case 10:
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	case 11:
		p.Spec.Volumes = []v1.Volume{claim}
	case 12:
		p.Spec.Volumes = []v1.Volume{claim}
		e.Claims = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}}}
	case 13:
		p.Annotations = map[string]string{podrequest.MinLinkKey: "FAST"}
	case 14:
		p.Spec.NodeSelector = map[string]string{"team": "vision"}
		for i := range e.Nodes {
			if random.IntN(3) == 0 {
				e.Nodes[i].Labels["team"] = "vision"
			}
		}
	}
}

// follow does what the next step says.
func (e *testEnv) follow(t *testing.T, x *Explanation) {
	t.Helper()
	p := e.pod("asks")
	switch kindOf(x.Cause) {
	case byNodes:
		e.node(t, "more", hopper, nil)
	case byRepair:
		if x.Cause == "UnhealthyGPUs" {
			e.heal()
		}
		e.repair()
	case byOpening:
		e.open()
	case bySelector:
		e.selectAll()
	case byAsking:
		e.askLess(t, x, p)
	case byLeaving:
		if len(x.Candidates) == 0 || len(x.Candidates[0].Blockers) == 0 {
			t.Fatalf("cause %s names no pods in the way: %s", x.Cause, x.Reason)
		}
		for _, b := range x.Candidates[0].Blockers {
			e.Pods = slices.DeleteFunc(e.Pods, func(p v1.Pod) bool { return p.Namespace+"/"+p.Name == b.Pod })
		}
	case byObject:
		switch x.Cause {
		case OtherScheduler:
			p.Spec.SchedulerName = "topology-aware-scheduler"
		case SchedulingGated:
			p.Spec.SchedulingGates = nil
		case Unreadable:
			maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return strings.Contains(x.Reason, key) })
		default:
			e.Claims = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}}
		}
	}
}

// askLess has the pod ask for what the next step says, or without what is said to lack.
func (e *testEnv) askLess(t *testing.T, x *Explanation, p *v1.Pod) {
	t.Helper()
	words := strings.Fields(x.Next)
	switch {
	case strings.HasPrefix(x.Next, "set "):
		follow(p, x.Next)
	case strings.HasPrefix(x.Next, "ask for at most "):
		n, err := strconv.Atoi(words[4])
		if err != nil {
			t.Fatalf("next step %q", x.Next)
		}
		setGPUs(p, n)
	default:
		for _, cause := range x.Lacks {
			for _, key := range keysOf[cause] {
				delete(p.Annotations, key)
			}
		}
	}
}

// asked is how many GPUs the pod asks for.
func (e *testEnv) asked() string {
	q := e.pod("asks").Spec.Containers[0].Resources.Requests[gpu]
	return q.String()
}
