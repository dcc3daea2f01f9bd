// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

const nvidia, amd = "nvidia.com/gpu", "amd.com/gpu"

// examplePool returns the pool of the acceptance scenarios: 64 GPUs with 8 reserved, and three
// tenants.
func examplePool() *v1alpha1.ComputePool {
	limit := func(n int32) *int32 { return &n }
	return &v1alpha1.ComputePool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Generation: 3},
		Spec: v1alpha1.ComputePoolSpec{
			PoolType: v1alpha1.PoolGPU,
			Capacity: v1alpha1.PoolCapacity{Total: 64, Reserved: 8},
			Quotas: []v1alpha1.TenantQuota{
				{Tenant: "a", Limit: limit(32), Guaranteed: 16, ProtectedLimit: limit(32), Weight: 1},
				{Tenant: "b", Limit: limit(24), Guaranteed: 8, ProtectedLimit: limit(24), Weight: 1},
				{Tenant: "c", Limit: limit(16), ProtectedLimit: limit(16), Weight: 1},
			},
		},
	}
}

// testNode returns a node of a pool with n devices of each resource.
func testNode(name, pool string, n int64, resources ...v1.ResourceName) *v1.Node {
	node := testobj.Node(name).UID("uid-"+name).Label(v1alpha1.LabelPool, pool).Ready(v1.ConditionTrue)
	for _, r := range resources {
		node.Resource(r, strconv.FormatInt(n, 10))
	}
	return node.Obj()
}

// exampleNodes are eight nodes of eight GPUs.
func exampleNodes() []*v1.Node {
	var out []*v1.Node
	for i := range 8 {
		out = append(out, testNode(fmt.Sprint("n", i), "pool", 8, nvidia))
	}
	return out
}

// testPod returns a running pod with n devices of a resource.
func testPod(namespace, name, node string, n int64, r v1.ResourceName) *v1.Pod {
	return testobj.Pod(name).Namespace(namespace).UID(namespace+"-"+name).Node(node).Limit(r, strconv.FormatInt(n, 10)).Phase(v1.PodRunning).Obj()
}

// testTopology returns a node's NodeGPUTopology with some unhealthy GPUs.
func testTopology(node *v1.Node, gpus int, sick ...int) *topology.NodeGPUTopology {
	t := &topology.NodeGPUTopology{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: topology.NodeGPUTopologySpec{NodeUID: node.UID}}
	for i := range gpus {
		t.Spec.GPUs = append(t.Spec.GPUs, topology.GPU{ID: fmt.Sprint("GPU-", i), Index: int32(i), Resource: nvidia})
	}
	for _, i := range sick {
		t.Status.GPUHealth = append(t.Status.GPUHealth, topology.GPUHealth{ID: fmt.Sprint("GPU-", i)})
	}
	return t
}

// withGPUs records a pod's GPUs in its annotation.
func withGPUs(t *testing.T, pod *v1.Pod, ids ...string) *v1.Pod {
	t.Helper()
	a := &allocation.Allocation{
		Version: allocation.Version, Node: pod.Spec.NodeName, PodUID: pod.UID,
		Containers: []allocation.Container{{Name: "main", Resource: nvidia, GPUs: ids}},
	}
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[allocation.Key] = text
	return pod
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	type numbers struct {
		Total, Reserved, Held, Available, Foreign, Discovered, ReadyNodes, ForTenants, Utilization int64
		States                                                                                     v1alpha1.DeviceStates
	}
	tenants := map[string]string{"team-a": "a", "team-b": "b"}
	for name, tc := range map[string]struct {
		change     func(pool *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node
		pods       func(t *testing.T) []*v1.Pod
		topologies func(nodes []*v1.Node) []*topology.NodeGPUTopology
		want       numbers
	}{
		"all is there and nothing runs": {want: numbers{
			Total: 64, Reserved: 8, Available: 56, Discovered: 64, ReadyNodes: 8, ForTenants: 56,
			States: v1alpha1.DeviceStates{Available: 56, Reserved: 8},
		}},
		"tenants hold some, and what has ended holds nothing": {
			pods: func(*testing.T) []*v1.Pod {
				ended, failed := testPod("team-a", "ended", "n0", 8, nvidia), testPod("team-a", "failed", "n2", 8, nvidia)
				ended.Status.Phase, failed.Status.Phase = v1.PodSucceeded, v1.PodFailed
				return []*v1.Pod{
					testPod("team-a", "x", "n0", 8, nvidia), testPod("team-b", "y", "n1", 4, nvidia), ended, failed, testPod("team-b", "waits", "", 4, nvidia),
				}
			},
			want: numbers{
				Total: 64, Reserved: 8, Held: 12, Available: 44, Discovered: 64, ReadyNodes: 8, ForTenants: 56, Utilization: 18,
				States: v1alpha1.DeviceStates{Available: 44, Reserved: 8, Allocated: 12},
			},
		},
		"a node is cordoned": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Spec.Unschedulable = true
				return nodes
			},
			want: numbers{
				Total: 64, Reserved: 8, Available: 48, Discovered: 64, ReadyNodes: 7, ForTenants: 48,
				States: v1alpha1.DeviceStates{Available: 48, Reserved: 8, Maintenance: 8},
			},
		},
		"six of eight nodes are cordoned, and a tenant has four GPUs of the others": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				for _, n := range nodes[:6] {
					n.Spec.Unschedulable = true
				}
				return nodes
			},
			pods: func(*testing.T) []*v1.Pod { return []*v1.Pod{testPod("team-a", "x", "n7", 4, nvidia)} },
			want: numbers{
				Total: 64, Reserved: 8, Held: 4, Available: 4, Discovered: 64, ReadyNodes: 2, ForTenants: 8, Utilization: 25,
				States: v1alpha1.DeviceStates{Available: 4, Reserved: 8, Allocated: 4, Maintenance: 48},
			},
		},
		"a node is cordoned of a pool that has one more than the owner says": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Spec.Unschedulable = true
				return append(nodes, testNode("n8", "pool", 8, nvidia))
			},
			want: numbers{
				Total: 64, Reserved: 8, Available: 56, Discovered: 72, ReadyNodes: 8, ForTenants: 56,
				States: v1alpha1.DeviceStates{Available: 56, Reserved: 8, Maintenance: 8},
			},
		},
		"a taint says maintenance, and what runs there is allocated": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Spec.Taints = []v1.Taint{{Key: "example.com/maintenance", Effect: v1.TaintEffectNoSchedule}}
				return nodes
			},
			pods: func(*testing.T) []*v1.Pod { return []*v1.Pod{testPod("team-a", "x", "n0", 3, nvidia)} },
			want: numbers{
				Total: 64, Reserved: 8, Held: 3, Available: 48, Discovered: 64, ReadyNodes: 7, ForTenants: 48, Utilization: 5,
				States: v1alpha1.DeviceStates{Available: 48, Reserved: 8, Allocated: 3, Maintenance: 5},
			},
		},
		"a node is not ready, and what runs there is lost": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Status.Conditions[0].Status = v1.ConditionUnknown
				return nodes
			},
			pods: func(*testing.T) []*v1.Pod { return []*v1.Pod{testPod("team-a", "x", "n0", 3, nvidia)} },
			want: numbers{
				Total: 64, Reserved: 8, Held: 3, Available: 48, Discovered: 64, ReadyNodes: 7, ForTenants: 48,
				States: v1alpha1.DeviceStates{Available: 48, Reserved: 8, Failed: 8},
			},
		},
		"a pod of no tenant takes from all": {
			pods: func(*testing.T) []*v1.Pod { return []*v1.Pod{testPod("kube-system", "x", "n0", 6, nvidia)} },
			want: numbers{
				Total: 64, Reserved: 8, Held: 6, Available: 50, Foreign: 6, Discovered: 64, ReadyNodes: 8, ForTenants: 50, Utilization: 9,
				States: v1alpha1.DeviceStates{Available: 50, Reserved: 8, Allocated: 6},
			},
		},
		"a pod of no tenant on a lost node takes nothing more": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Status.Conditions[0].Status = v1.ConditionFalse
				return nodes
			},
			pods: func(*testing.T) []*v1.Pod { return []*v1.Pod{testPod("kube-system", "x", "n0", 6, nvidia)} },
			want: numbers{
				Total: 64, Reserved: 8, Held: 6, Available: 48, Foreign: 6, Discovered: 64, ReadyNodes: 7, ForTenants: 48,
				States: v1alpha1.DeviceStates{Available: 48, Reserved: 8, Failed: 8},
			},
		},
		"two GPUs are sick, of which a pod has one": {
			topologies: func(nodes []*v1.Node) []*topology.NodeGPUTopology {
				return []*topology.NodeGPUTopology{testTopology(nodes[0], 8, 1, 2)}
			},
			pods: func(t *testing.T) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{withGPUs(t, testPod("team-a", "x", "n0", 2, nvidia), "GPU-0", "GPU-1")}
			},
			want: numbers{
				Total: 64, Reserved: 8, Held: 2, Available: 53, Discovered: 64, ReadyNodes: 8, ForTenants: 54, Utilization: 1,
				States: v1alpha1.DeviceStates{Available: 53, Reserved: 8, Allocated: 1, Failed: 2},
			},
		},
		"the device plugin and the exporter mean the same sick GPU": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				nodes[0].Status.Allocatable[nvidia] = resource.MustParse("7")
				return nodes
			},
			topologies: func(nodes []*v1.Node) []*topology.NodeGPUTopology {
				return []*topology.NodeGPUTopology{testTopology(nodes[0], 8, 1)}
			},
			want: numbers{
				Total: 64, Reserved: 8, Available: 55, Discovered: 64, ReadyNodes: 8, ForTenants: 55,
				States: v1alpha1.DeviceStates{Available: 55, Reserved: 8, Failed: 1},
			},
		},
		"the graph is of the node that had this name before": {
			topologies: func(nodes []*v1.Node) []*topology.NodeGPUTopology {
				old := testTopology(nodes[0], 8, 1, 2, 3)
				old.Spec.NodeUID = "another"
				return []*topology.NodeGPUTopology{old}
			},
			want: numbers{
				Total: 64, Reserved: 8, Available: 56, Discovered: 64, ReadyNodes: 8, ForTenants: 56,
				States: v1alpha1.DeviceStates{Available: 56, Reserved: 8},
			},
		},
		"more devices than the owner says are kept back": {
			change: func(_ *v1alpha1.ComputePool, nodes []*v1.Node) []*v1.Node {
				return append(nodes, testNode("n8", "pool", 8, nvidia))
			},
			want: numbers{
				Total: 64, Reserved: 8, Available: 56, Discovered: 72, ReadyNodes: 9, ForTenants: 56,
				States: v1alpha1.DeviceStates{Available: 56, Reserved: 16},
			},
		},
		"no node is there yet": {
			change: func(*v1alpha1.ComputePool, []*v1.Node) []*v1.Node { return nil },
			want:   numbers{},
		},
		"parts of devices": {
			change: func(pool *v1alpha1.ComputePool, _ []*v1.Node) []*v1.Node {
				pool.Spec.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-3g.40gb"}
				return []*v1.Node{testNode("n0", "pool", 16, "nvidia.com/mig-3g.40gb")}
			},
			topologies: func(nodes []*v1.Node) []*topology.NodeGPUTopology {
				return []*topology.NodeGPUTopology{testTopology(nodes[0], 8)}
			},
			pods: func(*testing.T) []*v1.Pod {
				return []*v1.Pod{testPod("team-a", "x", "n0", 3, "nvidia.com/mig-3g.40gb")}
			},
			// Two slices of 428 thousandths a GPU. Three of them keep two GPUs busy; the reserve is 8
			// whole GPUs, which is all.
			want: numbers{
				Total: 8, Reserved: 8, Held: 2, Discovered: 8, ReadyNodes: 1, Utilization: 25,
				States: v1alpha1.DeviceStates{Reserved: 6, Allocated: 2},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, nodes := examplePool(), exampleNodes()
			if tc.change != nil {
				nodes = tc.change(pool, nodes)
			}
			byNode := map[string]*topology.NodeGPUTopology{}
			if tc.topologies != nil {
				for _, topo := range tc.topologies(nodes) {
					byNode[topo.Name] = topo
				}
			}
			var pods []*v1.Pod
			if tc.pods != nil {
				pods = tc.pods(t)
			}
			c := CapacityOf(pool, MembersOf(pool, []*v1alpha1.ComputePool{pool}, nodes), byNode, pods, tenants)
			got := numbers{
				Total: c.Total(), Reserved: c.Reserved(), Held: c.Held(), Available: c.Available(), Foreign: c.Foreign(),
				Discovered: c.Discovered(), ReadyNodes: c.ReadyNodes, ForTenants: c.ForTenants()[c.Devices[0].resource()],
				Utilization: c.Utilization(), States: c.States(),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeOfTwoPools: a node of two pools belongs to the first.
func TestNodeOfTwoPools(t *testing.T) {
	t.Parallel()
	by := func(name string, selector map[string]string) *v1alpha1.ComputePool {
		p := examplePool()
		p.Name, p.Spec.NodeSelector = name, selector
		return p
	}
	pools := []*v1alpha1.ComputePool{by("z", map[string]string{"model": "h100"}), by("m", map[string]string{"rack": "1"})}
	both, one := testNode("both", "", 8, nvidia), testNode("one", "", 8, nvidia)
	both.Labels = map[string]string{"model": "h100", "rack": "1"}
	one.Labels = map[string]string{"model": "h100", "rack": "2"}
	nodes := []*v1.Node{both, one}

	m, z := MembersOf(pools[1], pools, nodes), MembersOf(pools[0], pools, nodes)
	if len(m.Nodes) != 1 || !m.Has("both") || len(m.Taken) != 0 {
		t.Errorf("pool m has %v, taken %v; want node both", m.names, m.Taken)
	}
	if len(z.Nodes) != 1 || !z.Has("one") {
		t.Errorf("pool z has %v; want node one", z.names)
	}
	if diff := cmp.Diff(map[string]string{"both": "m"}, z.Taken); diff != "" {
		t.Errorf("taken from z (-want +got):\n%s", diff)
	}
}

// TestDeviceStates: for any nodes and pods, each device is in one state, no number is negative, and
// tenants can share at most the existing devices.
func TestDeviceStates(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(17, 1))
	for round := range 3000 {
		pool := examplePool()
		pool.Spec.Capacity = v1alpha1.PoolCapacity{Total: 1 + rnd.Int32N(80), Reserved: rnd.Int32N(20)}
		nodes, byNode, pods := randomCluster(rnd)
		c := CapacityOf(pool, MembersOf(pool, []*v1alpha1.ComputePool{pool}, nodes), byNode, pods, map[string]string{"team-a": "a"})
		s := c.States()
		sum := int64(s.Available + s.Allocated + s.Reserved + s.Maintenance + s.Failed)
		var there int64
		for _, n := range nodes {
			for _, r := range []v1.ResourceName{nvidia, amd} {
				capacity, allocatable := n.Status.Capacity[r], n.Status.Allocatable[r]
				there += max(capacity.Value(), allocatable.Value(), 0)
			}
		}
		if sum != there || c.Discovered() != there {
			t.Fatalf("round %d: states %+v are %d, discovered %d, the nodes have %d", round, s, sum, c.Discovered(), there)
		}
		var shared int64
		for _, n := range c.ForTenants() {
			shared += n
		}
		for what, n := range map[string]int64{
			"available": int64(s.Available), "allocated": int64(s.Allocated), "reserved": int64(s.Reserved), "maintenance": int64(s.Maintenance),
			"failed": int64(s.Failed), "availableCapacity": c.Available(), "held": c.Held(), "foreign": c.Foreign(), "for tenants": shared,
			"total less for tenants": c.Total() - shared, "utilization": c.Utilization(),
			"what is left of the total, if anything is available": max(c.Total()-c.Reserved()-c.Held()-c.Available(), -c.Available()),
		} {
			if n < 0 {
				t.Fatalf("round %d: %s is %d", round, what, n)
			}
		}
	}
}

// randomCluster returns nodes in all states, with pods that hold more devices than exist.
func randomCluster(rnd *rand.Rand) (nodes []*v1.Node, byNode map[string]*topology.NodeGPUTopology, pods []*v1.Pod) {
	byNode = map[string]*topology.NodeGPUTopology{}
	for i := range rnd.IntN(8) {
		n := testNode(fmt.Sprint("n", i), "pool", rnd.Int64N(9), []v1.ResourceName{nvidia, amd}[rnd.IntN(2)])
		for r := range n.Status.Allocatable {
			n.Status.Allocatable[r] = *resource.NewQuantity(rnd.Int64N(10), resource.DecimalSI)
		}
		n.Spec.Unschedulable = rnd.IntN(4) == 0
		if rnd.IntN(4) == 0 {
			n.Status.Conditions[0].Status = v1.ConditionFalse
		}
		if rnd.IntN(2) == 0 {
			byNode[n.Name] = testTopology(n, 8, rnd.IntN(8), 8+rnd.IntN(8))
		}
		nodes = append(nodes, n)
		for j := range rnd.IntN(4) {
			p := testPod([]string{"team-a", "kube-system"}[rnd.IntN(2)], fmt.Sprint(n.Name, "-", j), n.Name, rnd.Int64N(8), []v1.ResourceName{nvidia, amd}[rnd.IntN(2)])
			pods = append(pods, p)
		}
	}
	return nodes, byNode, pods
}

// TestAbsurdNumbers: an absurd number on a node or pod does not overflow the counts of others.
func TestAbsurdNumbers(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	node := testNode("n0", "pool", 1<<60, nvidia)
	pod := testPod("kube-system", "x", "n0", 1<<62, nvidia)
	c := CapacityOf(pool, MembersOf(pool, []*v1alpha1.ComputePool{pool}, []*v1.Node{node}), nil, []*v1.Pod{pod, pod, pod}, nil)
	if c.Discovered() != maxOnNode || c.Held() != maxOnNode || c.Total() != 64 {
		t.Errorf("discovered %d, held %d, total %d", c.Discovered(), c.Held(), c.Total())
	}
}

// TestReservedParts: the reserve of a pool of several resources is divided in proportion to its
// devices, and none of it is lost.
func TestReservedParts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		devices  []int64
		reserved int64
		want     []int64
	}{
		"one of two halves":          {[]int64{5, 5}, 1, []int64{1, 0}},
		"the larger part":            {[]int64{2, 8}, 1, []int64{0, 1}},
		"the largest remainders":     {[]int64{7, 2, 1}, 3, []int64{2, 1, 0}},
		"nothing is left":            {[]int64{4, 4}, 2, []int64{1, 1}},
		"one resource":               {[]int64{64}, 8, []int64{8}},
		"no device: the first":       {[]int64{0, 0}, 8, []int64{8, 0}},
		"a resource without devices": {[]int64{3, 0, 3}, 3, []int64{2, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Capacity{reserved: tc.reserved}
			for _, n := range tc.devices {
				c.Devices = append(c.Devices, Devices{Unit: units.Unit{PerDevice: 1}, Discovered: n})
			}
			got := make([]int64, 0, len(tc.want))
			for i := range c.Devices {
				got = append(got, c.reservedPart(i))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
