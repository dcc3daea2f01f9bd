// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// slotsOf is how many members a supply has room for.
func slotsOf(s fabric.Supply) int { return s.Members() }

// tenancy is one node in a random state, and what members of a random gang ask for.
type tenancy struct {
	*rig
	t    *testing.T
	rng  *rand.Rand
	pods []*v1.Pod
	info fwk.NodeInfo
	list fwk.NodeInfoLister
}

func newTenancy(t *testing.T, rng *rand.Rand, kind string, kubelet *v1alpha1.Kubelet) *tenancy {
	t.Helper()
	c := &tenancy{rig: newRig(t, kind), t: t, rng: rng}
	obj := topologyOf(t, "n", kind)
	obj.ResourceVersion = "2"
	obj.Status.Kubelet = kubelet
	for i := range obj.Status.GPUHealth {
		if rng.IntN(20) == 0 {
			obj.Status.GPUHealth[i].Healthy = false
		}
	}
	if _, err := c.Apply(obj); err != nil {
		t.Fatal(err)
	}
	gpus := c.Node("n").Accels[0].Graph.Len()
	for i, p := range rng.Perm(gpus)[:rng.IntN(gpus)] {
		pod := gpuPod("old-"+strconv.Itoa(i), 1)
		if rng.IntN(3) == 0 {
			pod = guaranteed(pod, strconv.Itoa(1+rng.IntN(8)), "4Gi")
		}
		if rng.IntN(8) == 0 {
			pod.Spec.NodeName = "n" // nobody knows which GPU
		} else {
			pod = on(t, c.State, pod, "n", p)
		}
		c.pods = append(c.pods, pod)
	}
	c.info, c.list = c.view(t, c.pods...)
	return c
}

// gang is some pods that ask for the same.
func (c *tenancy) gang(size int) []*v1.Pod {
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
		pod := gpuPod(fmt.Sprintf("member-%d", i), gpus)
		if exclusive {
			pod = guaranteed(pod, cpu, "8Gi")
		} else {
			pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		for k, v := range asked {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
		}
		out = append(out, pod)
	}
	return out
}

// reservable fails the test unless a gang of n gets the sets of the supply.
func (c *tenancy) reservable(what string, supply fabric.Supply, gang []*v1.Pod, n int) {
	c.t.Helper()
	members := make([]GangMember, n)
	uids := make([]types.UID, n)
	for i, set := range supply.Slots.Sets(n) {
		members[i] = GangMember{Pod: gang[i], Demand: demandOf(c.t, gang[i]), Node: "n", GPUs: set}
		uids[i] = gang[i].UID
	}
	if failed, reason := c.ReserveGang(members, c.list); failed >= 0 {
		c.t.Fatalf("%s: member %d of %d cannot have its set %v: %s\n%s", what, failed, n, members[failed].GPUs.Positions(), reason, members[failed].Demand.Signature())
	}
	c.EndPlanned(uids...)
}

// oneByOne is how many of a gang get some GPUs when each chooses by itself.
func (c *tenancy) oneByOne(gang []*v1.Pod) (n int) {
	for ; n < len(gang); n++ {
		a, reason := c.Reserve(demandOf(c.t, gang[n]), gang[n], c.info, c.list)
		if reason != placement.Fits || a == nil {
			break
		}
	}
	for _, pod := range gang[:n] {
		c.Unreserve(pod.UID, "n")
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

// TestWhatANodeSuppliesCanBeReserved is the promise that a plan can be carried out: whatever
// number of members a plan puts on a node, they get the sets that the supply has for them. And
// as many fit as would if each pod chose by itself.
func TestWhatANodeSuppliesCanBeReserved(t *testing.T) {
	t.Parallel()
	slotter := placement.NewSlotCounter() // of all states together, as a process has it
	exact, estimated, none := 0, 0, 0
	for _, kind := range []string{"dgx1-v100", "a6000-8-bridged", "hgx-a100-8", "dgx2", "power9-v100-4", "v100-pcie-8"} {
		for k, kubelet := range kubelets() {
			for seed := range uint64(8) {
				what := fmt.Sprintf("%s, kubelet %d, seed %d", kind, k, seed)
				c := newTenancy(t, rand.New(rand.NewPCG(seed, uint64(k))), kind, kubelet)
				for range 4 {
					gang := c.gang(16)
					d := demandOf(t, gang[0])
					supply := c.Supply(d, c.info, c.list, slotter)
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
					if left := c.Dump(); len(left) != 0 {
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
func degradedAlone(c *tenancy, d *placement.Demand) bool {
	return d.Single() && c.Node("n").Accels[0].Degraded != 0
}

func TestAnEmptyNodeSuppliesWhatItHasWhenEmptied(t *testing.T) {
	t.Parallel()
	slotter := placement.NewSlotCounter()
	for k, kubelet := range kubelets() {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, uint64(k)))
			c := newTenancy(t, rng, "dgx1-v100", kubelet)
			gang := c.gang(16)
			d := demandOf(t, gang[0])
			got := c.EmptySupply(d, c.info, slotter, 0, nil, nil)
			c.info, c.list = c.view(t)
			if want := c.Supply(d, c.info, c.list, slotter); slotsOf(got) != slotsOf(want) {
				t.Errorf("kubelet %d, seed %d: %d slots when emptied, %d when empty\n%s", k, seed, slotsOf(got), slotsOf(want), d.Signature())
			}
			for n := 1; n <= slotsOf(got); n++ {
				c.reservable("empty", got, gang, n)
			}
		}
	}
}

func TestSupplyIsBoundedByWhatTheFrameworkCounts(t *testing.T) {
	asking := func(gpus int, list v1.ResourceList) *v1.Pod {
		pod := gpuPod("p", gpus)
		pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
		if pod.Spec.Containers[0].Resources.Requests == nil {
			pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{}
		}
		maps.Copy(pod.Spec.Containers[0].Resources.Requests, list)
		return pod
	}
	q := resource.MustParse
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		there []*v1.Pod // on the node, 512 CPUs, 4 TiB and 110 pods
		// plan is of another gang, whose pods have not had their cycles.
		plan *v1.Pod
		want int
	}{
		"GPUs":                        {asking(1, nil), nil, nil, 8},
		"CPU":                         {asking(1, v1.ResourceList{"cpu": q("100")}), nil, nil, 5},
		"memory":                      {asking(1, v1.ResourceList{"memory": q("1Ti")}), nil, nil, 4},
		"a resource that it has not":  {asking(1, v1.ResourceList{"example.com/nic": q("1")}), nil, nil, 0},
		"CPU of pods that are there":  {asking(1, v1.ResourceList{"cpu": q("100")}), []*v1.Pod{there(asking(0, v1.ResourceList{"cpu": q("200")}))}, nil, 3},
		"CPU of pods in another plan": {asking(1, v1.ResourceList{"cpu": q("100")}), nil, asking(1, v1.ResourceList{"cpu": q("300")}), 2},
		"pods without GPUs":           {asking(0, v1.ResourceList{"cpu": q("100")}), nil, nil, 5},
		"pods that ask for nothing":   {asking(0, nil), nil, nil, 110},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "dgx1-v100")
			info, l := r.view(t, tc.there...)
			if tc.plan != nil {
				tc.plan.UID = "planned"
				r.mustPlan(t, l, member(t, tc.plan, "n", 7))
			}
			if got := slotsOf(r.Supply(demandOf(t, tc.pod), info, l, placement.NewSlotCounter())); got != tc.want {
				t.Errorf("%d slots, want %d", got, tc.want)
			}
		})
	}
}

func there(pod *v1.Pod) *v1.Pod {
	pod.Name, pod.UID, pod.Spec.NodeName = "there", "there", "n"
	return pod
}

func TestSupplyBesideOtherMembers(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	info, l := r.view(t)
	launcher := demandOf(t, gpuPod("launcher", 2))
	d := demandOf(t, gpuPod("worker", 2))
	got := r.SupplyBeside(d, info, l, placement.NewSlotCounter(), nvtopo.MaskOf(0, 1), []Placed{{Demand: launcher, Count: 1}})
	if n := slotsOf(got); n != 3 {
		t.Errorf("%d slots beside a launcher of 2 GPUs, want 3", n)
	}
	for _, set := range got.Slots.Sets(3) {
		if set&nvtopo.MaskOf(0, 1) != 0 {
			t.Errorf("the launcher's GPUs are given out again: %v", set.Positions())
		}
	}
	if n := slotsOf(r.EmptySupply(d, info, placement.NewSlotCounter(), nvtopo.MaskOf(0, 1), []Placed{{Demand: launcher, Count: 1}}, nil)); n != 3 {
		t.Errorf("%d slots beside a launcher of 2 GPUs when the node is empty, want 3", n)
	}
	affine := demandOf(t, annotated(guaranteed(gpuPod("worker", 1), "20", "1Gi"), podrequest.NUMAAffinityKey, "required"))
	alone := slotsOf(r.Supply(affine, info, l, placement.NewSlotCounter()))
	beside := r.SupplyBeside(affine, info, l, placement.NewSlotCounter(), nvtopo.MaskOf(0), []Placed{{Demand: demandOf(t, guaranteed(gpuPod("launcher", 1), "20", "1Gi")), Count: 1}})
	if n := slotsOf(beside); n == 0 || n >= alone {
		t.Errorf("%d slots beside a pod of 20 CPUs, want fewer than the %d without it", n, alone)
	}
}

// TestAnEmptiedNodeHasThePodsThatStay: those of the gang itself that are bound there.
func TestAnEmptiedNodeHasThePodsThatStay(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	stays := on(t, r.State, guaranteed(gpuPod("stays", 2), "312", "1Gi"), "n", 0, 1)
	goes := on(t, r.State, gpuPod("goes", 4), "n", 4, 5, 6, 7)
	info, _ := r.view(t, stays, goes)
	stay := sets.New(stays.UID)
	got := r.EmptySupply(demandOf(t, gpuPod("p", 2)), info, placement.NewSlotCounter(), 0, nil, stay)
	if n := slotsOf(got); n != 3 {
		t.Errorf("%d slots of 2 GPUs beside a pod with 2, want 3", n)
	}
	for _, set := range got.Slots.Sets(slotsOf(got)) {
		if set&nvtopo.MaskOf(0, 1) != 0 {
			t.Errorf("the GPUs of the pod that stays are given out: %v", set.Positions())
		}
	}
	cpu := demandOf(t, guaranteed(gpuPod("p", 0), "100", "1Gi"))
	if n := slotsOf(r.EmptySupply(cpu, info, placement.NewSlotCounter(), 0, nil, stay)); n != 2 {
		t.Errorf("%d slots of 100 CPUs beside a pod with 312 of 512, want 2", n)
	}
	if n := slotsOf(r.EmptySupply(demandOf(t, gpuPod("p", 2)), info, placement.NewSlotCounter(), 0, nil, nil)); n != 4 {
		t.Errorf("%d slots of 2 GPUs if nobody stays, want 4", n)
	}
	planned := gpuPod("planned", 2)
	planned.UID = "planned"
	free, l := r.view(t)
	r.mustPlan(t, l, member(t, planned, "n", 2, 3))
	got = r.EmptySupply(demandOf(t, gpuPod("p", 2)), free, placement.NewSlotCounter(), 0, nil, sets.New(planned.UID))
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
	stamper := s.Stamper(names)
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
		"links": annotated(gpuPod("p", 4), podrequest.MinLinkKey, "NVLINK"),
		"NUMA":  annotated(guaranteed(gpuPod("p", 4), "8", "8Gi"), podrequest.NUMAAffinityKey, "required"),
	} {
		slotter, d := placement.NewSlotCounter(), demandOf(b, pod)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Supply(d, infos[i%len(infos)], l, slotter)
			}
		})
	}
}
