// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// fuzzView is a State with one node in a snapshot.
func fuzzView(tb testing.TB, node *v1.Node, s *State, pods ...*v1.Pod) (fwk.NodeInfo, fwk.NodeInfoLister) {
	tb.Helper()
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		s.PodDevices.leases.Set(lease(prefix+node.Name, s.clock.Now(), time.Hour), s.clock.Now())
	}
	l := schedcache.NewSnapshot(pods, []*v1.Node{node}).NodeInfos()
	info, err := l.Get(node.Name)
	if err != nil {
		tb.Fatal(err)
	}
	return info, l
}

func fuzzState() *State {
	s := New(testConfig(), &tickClock{now: time.Unix(1_700_000_000, 0)})
	s.listers.pods = fixedStore{}
	return s
}

// bridged returns a function that makes a State with one node of four GPUs, without reading the catalogue
// of machines each time.
func bridged(tb testing.TB) func() (*State, *v1.Node) {
	tb.Helper()
	obj := topologyOf(tb, "n", "a100-pcie-4-bridged")
	node := addNode(tb, fuzzState(), "n", "a100-pcie-4-bridged")
	return func() (*State, *v1.Node) {
		s := fuzzState()
		if _, err := s.Graphs.Apply(obj); err != nil {
			tb.Fatal(err)
		}
		return s, node
	}
}

// checkReserved checks that an allocation satisfies the request, on healthy GPUs outside of taken, and
// that its annotation parses to an equal one. It returns the GPUs.
func checkReserved(t *testing.T, n *usage.Node, r *podrequest.Request, a *allocation.Allocation, taken nvtopo.Mask) nvtopo.Mask {
	t.Helper()
	var all nvtopo.Mask
	for _, want := range r.Resources {
		accel := n.Accel(want.Name)
		got, missing := accel.Graph.Positions(a.GPUs(want.Name))
		if got.Len() != want.Count || len(missing) > 0 || got&^accel.Healthy != 0 {
			t.Fatalf("%d of %s asked for, got %v of %v healthy (unknown: %v)", want.Count, want.Name, got, accel.Healthy, missing)
		}
		if want.Name == testResource {
			all = got
		}
	}
	if all&taken != 0 {
		t.Fatalf("GPUs %v are given twice", all&taken)
	}
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := allocation.Parse(text)
	if err != nil {
		t.Fatalf("the scheduler's own annotation cannot be read: %v\n%s", err, text)
	}
	if !again.Equal(a) {
		t.Fatalf("%s reads back as %+v", text, again)
	}
	return all
}

// FuzzApply applies an arbitrary object after a good one of the same node, and has pods judged and given
// devices there: an object that is refused leaves the good one, and no accepted object makes one GPU
// belong to two pods.
func FuzzApply(f *testing.F) {
	good := func(name string) *v1alpha1.NodeGPUTopology {
		obj := topologyOf(f, "n", name)
		obj.UID, obj.ResourceVersion = "", ""
		return obj
	}
	seed := func(obj *v1alpha1.NodeGPUTopology, gpus, policy uint8) {
		text, err := json.Marshal(obj)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), gpus, policy)
	}
	seed(good("a100-pcie-4-bridged"), 2, 1)
	aligned := good("a100-pcie-4-bridged")
	aligned.Status.Kubelet = &v1alpha1.Kubelet{
		TopologyManagerPolicy: "restricted", Scope: "pod", CPUManagerPolicy: "static", MemoryManagerPolicy: "Static", ReservedCPUs: "0", ExclusiveCPUs: "1-2",
		Memory: []v1alpha1.KubeletMemory{{NUMANode: 0, Allocatable: resource.MustParse("8Gi"), Free: resource.MustParse("-1"), Cells: []int32{0, 63}}},
	}
	seed(aligned, 2, 3)
	lying := good("a100-pcie-4-bridged")
	for _, uid := range []types.UID{"first", "nobody"} {
		lying.Status.Allocations = append(lying.Status.Allocations, v1alpha1.Allocation{
			PodUID: uid, Container: "main", Resource: testResource, CPUs: "0-8191", State: v1alpha1.StateReassigned,
			GPUs: []string{lying.Spec.GPUs[0].ID, "GPU-of-nobody"},
		})
	}
	seed(lying, 1, 0)
	lying.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: lying.Spec.GPUs[3].ID}, {ID: "GPU-of-nobody"}}
	seed(lying, 3, 2)
	f.Add(`{"spec":{"nodeUID":"node-uid-n","gpus":[],"numaNodes":[]}}`, uint8(1), uint8(0))
	site := bridged(f)
	f.Fuzz(func(t *testing.T, text string, gpus, policy uint8) {
		obj := &v1alpha1.NodeGPUTopology{}
		if json.Unmarshal([]byte(text), obj) != nil {
			return
		}
		s, node := site()
		before := s.Nodes.Node("n")
		obj.Name, obj.UID, obj.ResourceVersion, obj.Spec.NodeUID = "n", "topology-n", "2", node.UID
		_, unreadable := obj.Graphs()
		_, err := s.Graphs.Apply(obj)
		now := s.Nodes.Node("n")
		if now == nil {
			t.Fatalf("the good graph is gone: %v", err)
		}
		if unreadable != nil && (err == nil || now.Accel(testResource) == nil ||
			now.Accel(testResource).Tables.Class() != before.Accel(testResource).Tables.Class()) {
			t.Fatalf("the graph cannot be read (%v), but the good one is gone (reported: %v)", unreadable, err)
		}
		info, l := fuzzView(t, node, s)
		var taken nvtopo.Mask
		for i, name := range []string{"first", "second", "third"} {
			asks := schedtest.Pod(name).GPUs(1+int(gpus%8)).
				Annotation(podrequest.TopologyPolicyKey, []string{"none", "best-effort", "restricted", "single-numa-node"}[policy%4])
			if i == 1 {
				asks.CPU("2").Memory("1Gi")
			}
			pod := asks.Obj()
			d := demandOf(t, pod)
			if v := s.Nodes.Judge(d, info, l); v.Reason != placement.Fits {
				continue
			}
			a, reason := s.Allocations.Assume(d, pod, info, l)
			if reason != placement.Fits {
				t.Fatalf("Filter says that the pod fits, Reserve says: %s", reason)
			}
			taken |= checkReserved(t, s.Nodes.Node("n"), d.Request, a, taken)
		}
	})
}

// FuzzParseRequest judges pods with arbitrary annotations and quantities: only pods that fit the node get
// devices. FuzzParse of pkg/placement/podrequest has the numbers themselves.
func FuzzParseRequest(f *testing.F) {
	for i, value := range []string{
		"best-effort", "required", "NV4", "1e309", "true", "H100,A100", "80Gi", "NaN", "Inf", "-1", "0x1p-1074", "\u202eNV4", "１", "(a+)+$",
	} {
		f.Add(uint8(i), value, "2", "1", "4", uint8(i))
	}
	f.Add(uint8(0), "none", "9223372036854775807", "9223372036854775807", "9223372036854775807", uint8(1))
	f.Add(uint8(0), "none", "9223372036854775807", "9223372036854775807", "9223372036854775807", uint8(0))
	f.Add(uint8(6), "1e-100000000", "1", "1", "1", uint8(0))
	f.Add(uint8(1), "none", "1e30", "2147483648", "9223372036854775807", uint8(2))
	f.Add(uint8(2), "SYS", "0.5", "-1", "1n", uint8(3))
	site := bridged(f)
	f.Fuzz(func(t *testing.T, key uint8, value, first, second, cpu string, kinds uint8) {
		all := podrequest.InputKeys()
		pod := schedtest.Pod("p").Containers().Annotation(all[int(key)%len(all)], value).Obj()
		for i, text := range []string{first, second, first} {
			q, err := quantity(text) // the API server parses pods' quantities first
			if err != nil {
				return
			}
			c := container(string(rune('a'+i)), 0)
			c.Resources.Requests = v1.ResourceList{testResource: q}
			if q, err := quantity(cpu); err == nil {
				c.Resources.Requests["cpu"] = q
			}
			if kinds>>i&1 == 0 {
				pod.Spec.Containers = append(pod.Spec.Containers, c)
			} else {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			}
		}
		r, err := podrequest.Parse(pod, testOptions())
		if err != nil {
			return
		}
		s, node := site()
		info, l := fuzzView(t, node, s)
		d := &placement.Demand{Request: r, WantCPUs: true}
		if v := s.Nodes.Judge(d, info, l); v.Reason != placement.Fits {
			return
		}
		if a, reason := s.Allocations.Assume(d, pod, info, l); reason != placement.Fits {
			t.Fatalf("Filter says that the pod fits, Reserve says: %s", reason)
		} else if a != nil {
			checkReserved(t, s.Nodes.Node("n"), r, a, 0)
		}
	})
}

// FuzzUsage puts a pod with an arbitrary allocation annotation on a node: it may use GPUs but never free
// any, and an annotation that is not the pod's own for this node leaves its devices untracked.
func FuzzUsage(f *testing.F) {
	s := fuzzState()
	node := addNode(f, s, "n", "a100-pcie-4-bridged")
	f.Add(on(f, s, schedtest.Pod("mine").GPUs(2).Obj(), "n", 1, 3).Annotations[allocation.Key], int64(2))
	f.Add(on(f, s, schedtest.Pod("another").GPUs(2).Obj(), "n", 1, 3).Annotations[allocation.Key], int64(2))
	f.Add(`{"version":1,"node":"n","podUID":"mine","cpuset":"0-8191","numaNodes":[-1,99,0],"containers":[{"name":"main","resource":"nvidia.com/gpu","gpus":["GPU-x"]}]}`,
		int64(9223372036854775807))
	f.Add(`{"version":1,"node":"n","podUID":"mine"}`, int64(-1))
	f.Add("", int64(9223372036854775807))
	f.Add("\ufeff{}", int64(0))
	f.Fuzz(func(t *testing.T, text string, gpus int64) {
		mine := schedtest.Pod("mine").Node("n").Annotation(allocation.Key, text).Obj()
		mine.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			testResource: *resource.NewQuantity(gpus, resource.DecimalSI), "cpu": *resource.NewQuantity(gpus, resource.DecimalSI),
		}
		twin := mine.DeepCopy()
		twin.Name, twin.UID = "twin", "twin"
		other := on(t, s, schedtest.Pod("other").GPUs(1).Obj(), "n", 0)
		info, l := fuzzView(t, node, s, other, mine, twin)
		d := demandOf(t, schedtest.Pod("new").GPUs(1).Obj())
		u := s.Nodes.View(d, info, l)
		free := u.Free(testResource)
		if free&1 != 0 {
			t.Fatalf("GPU 0 of another pod is free")
		}
		a, err := allocation.Parse(text)
		if err == nil && a.Node == "n" && (a.PodUID == "mine" || a.PodUID == "twin") {
			if held, _ := s.Nodes.Node("n").Accel(testResource).Graph.Positions(a.GPUs(testResource)); held&free != 0 {
				t.Fatalf("GPUs %v of the annotation are free", held&free)
			}
			return
		}
		three := s.Nodes.Judge(demandOf(t, schedtest.Pod("new").GPUs(3).Obj()), info, l)
		if gpus > 0 && !u.Foreign[0] || u.Counted[0] < 0 || gpus >= 2 && three.Reason == placement.Fits {
			t.Fatalf("two pods with %d GPUs each count as %d (foreign: %t)", gpus, u.Counted[0], u.Foreign[0])
		}
		if slices.ContainsFunc(u.NUMA, func(n usage.NUMAFree) bool { return n.MilliCPU > 1<<40 }) {
			t.Fatalf("pods that ask for %d CPUs leave %+v", gpus, u.NUMA)
		}
	})
}

// quantity parses a quantity, unless that would take minutes.
func quantity(text string) (resource.Quantity, error) {
	if len(text) > 24 || strings.ContainsAny(text, "eE") && len(text) > 5 {
		return resource.Quantity{}, errors.New("too long")
	}
	return resource.ParseQuantity(text)
}
