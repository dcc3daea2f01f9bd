// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// slotsOf returns how many members a supply has room for.
func slotsOf(s fabric.Supply) int { return s.Members() }

// randomNode is one node in a random state, and the requests of members of a random gang.
type randomNode struct {
	*testEnv
	t    *testing.T
	rng  *rand.Rand
	pods []*v1.Pod
	info fwk.NodeInfo
	list fwk.NodeInfoLister
}

func newRandomNode(t *testing.T, rng *rand.Rand, kind string, kubelet *v1alpha1.Kubelet) *randomNode {
	t.Helper()
	c := &randomNode{testEnv: newTestEnv(t, kind), t: t, rng: rng}
	obj := topologyOf(t, "n", kind)
	obj.ResourceVersion = "2"
	obj.Status.Kubelet = kubelet
	for i := range obj.Status.GPUHealth {
		if rng.IntN(20) == 0 {
			obj.Status.GPUHealth[i].Healthy = false
		}
	}
	if _, err := c.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	gpus := c.Nodes.Node("n").Accels[0].Graph.Len()
	for i, p := range rng.Perm(gpus)[:rng.IntN(gpus)] {
		asks := schedtest.Pod("old-" + strconv.Itoa(i)).GPUs(1)
		if rng.IntN(3) == 0 {
			asks.CPU(strconv.Itoa(1 + rng.IntN(8))).Memory("4Gi")
		}
		pod := asks.Node("n").Obj()
		if rng.IntN(8) != 0 { // otherwise its GPU is unknown
			pod = on(t, c.State, pod, "n", p)
		}
		c.pods = append(c.pods, pod)
	}
	c.info, c.list = c.view(t, c.pods...)
	return c
}

// gang returns pods with equal requests.
func (c *randomNode) gang(size int) []*v1.Pod {
	rng := c.rng
	gpus, cpu := 1+rng.IntN(4), strconv.Itoa(1+rng.IntN(24))
	exclusive, asked := rng.IntN(2) == 0, map[string]string{}
	some := func(key string, values ...string) {
		if rng.IntN(3) == 0 {
			asked[key] = values[rng.IntN(len(values))]
		}
	}
	some(podrequest.MinLinkKey, "NVLINK", "PIX", "SYS")
	some(podrequest.TopologyPolicyKey, "restricted", "single-numa-node", "none")
	some(podrequest.NUMAAffinityKey, "required", "preferred")
	var out []*v1.Pod
	for i := range size {
		pod := schedtest.Pod(fmt.Sprintf("member-%d", i)).GPUs(gpus).Annotations(asked)
		if exclusive {
			pod.CPU(cpu).Memory("8Gi")
		} else {
			pod.Request("cpu", cpu)
		}
		out = append(out, pod.Obj())
	}
	return out
}

// reservable fails the test unless a gang of n gets the sets of the supply.
func (c *randomNode) reservable(what string, supply fabric.Supply, gang []*v1.Pod, n int) {
	c.t.Helper()
	members := make([]GangMember, n)
	uids := make([]types.UID, n)
	for i, set := range supply.Slots.Sets(n) {
		members[i] = GangMember{Pod: gang[i], Demand: demandOf(c.t, gang[i]), Node: "n", GPUs: set}
		uids[i] = gang[i].UID
	}
	if failed, reason := c.GangReserver.ReserveGang(members, c.list, nil, nil); failed >= 0 {
		c.t.Fatalf("%s: member %d of %d cannot have its set %v: %s\n%s", what, failed, n, members[failed].GPUs.Positions(), reason, members[failed].Demand.Signature())
	}
	c.GangReserver.EndPlanned(uids...)
}

// oneByOne returns how many of a gang get GPUs when each chooses by itself.
func (c *randomNode) oneByOne(gang []*v1.Pod) (n int) {
	for ; n < len(gang); n++ {
		a, reason := c.Allocations.Assume(demandOf(c.t, gang[n]), gang[n], c.info, c.list)
		if reason != placement.Fits || a == nil {
			break
		}
	}
	for _, pod := range gang[:n] {
		c.Allocations.Forget(pod.UID, "n")
	}
	return n
}

func kubelets() []*v1alpha1.Kubelet {
	return []*v1alpha1.Kubelet{
		nil,
		{TopologyManagerPolicy: "best-effort"},
		{TopologyManagerPolicy: "restricted"},
		{TopologyManagerPolicy: "single-numa-node"},
		{TopologyManagerPolicy: "single-numa-node", CPUManagerPolicy: "static", ReservedCPUs: "0-1"},
		{TopologyManagerPolicy: "restricted", CPUManagerPolicy: "static", ReservedCPUs: "0-1"},
		{TopologyManagerPolicy: "best-effort", CPUManagerPolicy: "static", ReservedCPUs: "0-1"},
	}
}

// TestReservableSupply: the supply of a node can be reserved, so that a plan can be carried out: for any
// number of members that a plan puts on a node, they get their sets of the supply. And as many fit as
// would if each pod chose by itself.
func TestReservableSupply(t *testing.T) {
	t.Parallel()
	slotter := placement.NewSlotCounter() // one for all states, as in a process
	exact, estimated, none := 0, 0, 0
	for _, kind := range []string{"dgx1-v100", "a6000-8-bridged", "hgx-a100-8", "dgx2", "power9-v100-4", "v100-pcie-8"} {
		for k, kubelet := range kubelets() {
			for seed := range uint64(8) {
				what := fmt.Sprintf("%s, kubelet %d, seed %d", kind, k, seed)
				c := newRandomNode(t, rand.New(rand.NewPCG(seed, uint64(k))), kind, kubelet)
				for range 4 {
					gang := c.gang(16)
					d := demandOf(t, gang[0])
					supply := c.Nodes.Supply(d, c.info, c.list, slotter)
					slots := slotsOf(supply)
					for n := 1; n <= slots; n++ {
						c.reservable(what, supply, gang, n)
					}
					switch {
					case slots == 0:
						none++
					case supply.Slots.Estimated():
						estimated++
					default:
						exact++
					}
					if alone := c.oneByOne(gang); alone > slots && !degradedAlone(c, d) {
						t.Fatalf("%s: %d slots, but %d pods find room by themselves\n%s", what, slots, alone, d.Signature())
					}
					if left := c.Allocations.Dump(); len(left) != 0 {
						t.Fatalf("%s: left: %+v", what, left)
					}
				}
			}
		}
	}
	t.Logf("%d exact, %d estimated, %d without slots", exact, estimated, none)
	if exact < 400 || estimated < 20 || none < 100 {
		t.Errorf("%d exact supplies, %d estimated, %d empty ones: too few of some", exact, estimated, none)
	}
}

// degradedAlone reports whether pods of one GPU may choose GPUs that members do not get.
func degradedAlone(c *randomNode, d *placement.Demand) bool {
	return d.Single() && c.Nodes.Node("n").Accels[0].Degraded != 0
}

// TestEmptyNodeSupply: an empty node supplies the same as when emptied.
func TestEmptyNodeSupply(t *testing.T) {
	t.Parallel()
	slotter := placement.NewSlotCounter()
	for k, kubelet := range kubelets() {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, uint64(k)))
			c := newRandomNode(t, rng, "dgx1-v100", kubelet)
			gang := c.gang(16)
			d := demandOf(t, gang[0])
			got := c.Nodes.EmptySupply(d, c.info, slotter, 0, nil, nil)
			c.info, c.list = c.view(t)
			if want := c.Nodes.Supply(d, c.info, c.list, slotter); slotsOf(got) != slotsOf(want) {
				t.Errorf("kubelet %d, seed %d: %d slots when emptied, %d when empty\n%s", k, seed, slotsOf(got), slotsOf(want), d.Signature())
			}
			for n := 1; n <= slotsOf(got); n++ {
				c.reservable("empty", got, gang, n)
			}
		}
	}
}

// TestSupplyBounds: the supply is bounded by the framework's resources.
func TestSupplyBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		there []*v1.Pod // on the node, 512 CPUs, 4 TiB and 110 pods
		// plan is of another gang, whose pods have not had their cycles.
		plan *v1.Pod
		want int
	}{
		"GPUs":                       {schedtest.Pod("p").GPUs(1).Obj(), nil, nil, 8},
		"CPU":                        {schedtest.Pod("p").GPUs(1).Request("cpu", "100").Obj(), nil, nil, 5},
		"memory":                     {schedtest.Pod("p").GPUs(1).Request("memory", "1Ti").Obj(), nil, nil, 4},
		"a resource that it has not": {schedtest.Pod("p").GPUs(1).Request("example.com/nic", "1").Obj(), nil, nil, 0},
		"CPU of pods that are there": {
			schedtest.Pod("p").GPUs(1).Request("cpu", "100").Obj(),
			[]*v1.Pod{schedtest.Pod("there").Request("cpu", "200").Node("n").Obj()},
			nil, 3,
		},
		"CPU of pods in another plan": {
			schedtest.Pod("p").GPUs(1).Request("cpu", "100").Obj(), nil,
			schedtest.Pod("planned").GPUs(1).Request("cpu", "300").Obj(), 2,
		},
		"pods without GPUs":         {schedtest.Pod("p").Request("cpu", "100").Obj(), nil, nil, 5},
		"pods that ask for nothing": {schedtest.Pod("p").Obj(), nil, nil, 110},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			info, l := r.view(t, tc.there...)
			if tc.plan != nil {
				r.mustPlan(t, l, member(t, tc.plan, "n", 7))
			}
			if got := slotsOf(r.Nodes.Supply(demandOf(t, tc.pod), info, l, placement.NewSlotCounter())); got != tc.want {
				t.Errorf("%d slots, want %d", got, tc.want)
			}
		})
	}
}

func TestSupplyBesideOtherMembers(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	launcher := demandOf(t, schedtest.Pod("launcher").GPUs(2).Obj())
	d := demandOf(t, schedtest.Pod("worker").GPUs(2).Obj())
	got := r.Nodes.SupplyAfter(d, info, l, placement.NewSlotCounter(), nvtopo.MaskOf(0, 1), []Placed{{Demand: launcher, Count: 1}}, nil)
	if n := slotsOf(got); n != 3 {
		t.Errorf("%d slots beside a launcher of 2 GPUs, want 3", n)
	}
	for _, set := range got.Slots.Sets(3) {
		if set&nvtopo.MaskOf(0, 1) != 0 {
			t.Errorf("the launcher's GPUs are given out again: %v", set.Positions())
		}
	}
	if n := slotsOf(r.Nodes.EmptySupply(d, info, placement.NewSlotCounter(), nvtopo.MaskOf(0, 1), []Placed{{Demand: launcher, Count: 1}}, nil)); n != 3 {
		t.Errorf("%d slots beside a launcher of 2 GPUs when the node is empty, want 3", n)
	}
	affine := demandOf(t, schedtest.Pod("worker").GPUs(1).CPU("20").Memory("1Gi").Annotation(podrequest.NUMAAffinityKey, "required").Obj())
	alone := slotsOf(r.Nodes.Supply(affine, info, l, placement.NewSlotCounter()))
	beside := r.Nodes.SupplyAfter(affine, info, l, placement.NewSlotCounter(), nvtopo.MaskOf(0),
		[]Placed{{Demand: demandOf(t, schedtest.Pod("launcher").GPUs(1).CPU("20").Memory("1Gi").Obj()), Count: 1}}, nil)
	if n := slotsOf(beside); n == 0 || n >= alone {
		t.Errorf("%d slots beside a pod of 20 CPUs, want fewer than the %d without it", n, alone)
	}
}

// TestEmptiedNodePods: an emptied node has the pods that stay: those of the gang itself that are
// bound there.
func TestEmptiedNodePods(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	stays := on(t, r.State, schedtest.Pod("stays").GPUs(2).CPU("312").Memory("1Gi").Obj(), "n", 0, 1)
	goes := on(t, r.State, schedtest.Pod("goes").GPUs(4).Obj(), "n", 4, 5, 6, 7)
	info, _ := r.view(t, stays, goes)
	stay := sets.New(stays.UID)
	got := r.Nodes.EmptySupply(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), info, placement.NewSlotCounter(), 0, nil, stay)
	if n := slotsOf(got); n != 3 {
		t.Errorf("%d slots of 2 GPUs beside a pod with 2, want 3", n)
	}
	for _, set := range got.Slots.Sets(slotsOf(got)) {
		if set&nvtopo.MaskOf(0, 1) != 0 {
			t.Errorf("the GPUs of the pod that stays are given out: %v", set.Positions())
		}
	}
	cpu := demandOf(t, schedtest.Pod("p").CPU("100").Memory("1Gi").Obj())
	if n := slotsOf(r.Nodes.EmptySupply(cpu, info, placement.NewSlotCounter(), 0, nil, stay)); n != 2 {
		t.Errorf("%d slots of 100 CPUs beside a pod with 312 of 512, want 2", n)
	}
	if n := slotsOf(r.Nodes.EmptySupply(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), info, placement.NewSlotCounter(), 0, nil, nil)); n != 4 {
		t.Errorf("%d slots of 2 GPUs if nobody stays, want 4", n)
	}
	planned := schedtest.Pod("planned").GPUs(2).Obj()
	free, l := r.view(t)
	r.mustPlan(t, l, member(t, planned, "n", 2, 3))
	got = r.Nodes.EmptySupply(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), free, placement.NewSlotCounter(), 0, nil, sets.New(planned.UID))
	if n := slotsOf(got); n != 3 {
		t.Errorf("%d slots of 2 GPUs beside a pod that is not in the snapshot yet, want 3", n)
	}
}

func BenchmarkSupply(b *testing.B) {
	s := New(testConfig(), &tickClock{})
	var nodes []*v1.Node
	for i := range 5000 {
		nodes = append(nodes, addNode(b, s, fmt.Sprint("node-", i), "hgx-a100-8"))
	}
	l := schedcache.NewSnapshot(nil, nodes).NodeInfos()
	infos, err := l.List()
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, len(infos))
	for i := range infos {
		names[i] = infos[i].Node().Name
	}
	stamper := s.Nodes.Stamper(names)
	stamps := make([]Stamp, len(infos))
	b.Run("stamp", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			stamps[i%len(infos)] = stamper.Stamp(i%len(infos), infos[i%len(infos)])
		}
	})
	b.Run("stamp that holds", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if at := i % len(infos); !stamper.Holds(at, &stamps[at], infos[at]) {
				b.Fatal("it does not hold")
			}
		}
	})
	for name, pod := range map[string]*v1.Pod{
		"links": schedtest.Pod("p").GPUs(4).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(),
		"NUMA":  schedtest.Pod("p").GPUs(4).CPU("8").Memory("8Gi").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
	} {
		slotter, d := placement.NewSlotCounter(), demandOf(b, pod)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Nodes.Supply(d, infos[i%len(infos)], l, slotter)
			}
		})
	}
}
