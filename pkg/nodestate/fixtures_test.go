// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
"os"
"strings"
)

const (
	testResource   = "nvidia.com/gpu"
	requestTimeout = 60 * time.Second
)

// tickClock is a clock that stands where the test puts it.
type tickClock struct {
	clock.WithTicker
	now time.Time
}

func (c *tickClock) Now() time.Time                  { return c.now }
func (c *tickClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func testConfig() Config {
	return Config{Namespace: "nvtopo-system", Weights: nvtopo.DefaultWeights(), RequestTimeout: requestTimeout, LeaderTerm: 15 * time.Second}
}

// topologyOf is the NodeGPUTopology of a catalogue machine.
func topologyOf(tb testing.TB, name, kind string) *v1alpha1.NodeGPUTopology {
	tb.Helper()
	f, err := os.Open("/work/shared/fixtures/topo/dgx1-v100.txt")
	if err != nil {
		tb.Fatal(err)
	}
	nn, _ := smi.ParseNUMA(strings.NewReader("available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59\nnode 0 size: 257862 MB\nnode 0 free: 1 MB\nnode 1 cpus: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79\nnode 1 size: 258041 MB\nnode 1 free: 1 MB\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n"))
	g, err := smi.Parse(f, smi.Options{NUMA: nn})
	if err != nil {
		tb.Fatal(err)
	}
	obj := v1alpha1.FromGraph(name, testResource, g)
	obj.UID, obj.ResourceVersion = types.UID("topology-"+name), "1"
	obj.Spec.NodeUID = types.UID("node-uid-" + name)
	return obj
}

// addNode gives the State a node whose exporter and agent are fresh for a day.
func addNode(tb testing.TB, s *State, name, kind string) *v1.Node {
	tb.Helper()
	obj := topologyOf(tb, name, kind)
	if _, err := s.Apply(obj); err != nil {
		tb.Fatal(err)
	}
	for _, prefix := range []string{ExporterLeasePrefix, AgentLeasePrefix} {
		s.leases.set(lease(prefix+name, s.clock.Now(), 365*24*time.Hour), s.clock.Now())
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: obj.Spec.NodeUID}}
	node.Status.Allocatable = v1.ResourceList{
		testResource: *resource.NewQuantity(int64(len(obj.Spec.GPUs)), resource.DecimalSI), "cpu": resource.MustParse("512"),
		"memory": resource.MustParse("4Ti"), "pods": resource.MustParse("110"),
	}
	return node
}

func lease(name string, renewed time.Time, d time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			RenewTime: ptr.To(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: ptr.To(int32(d / time.Second)),
		},
	}
}

func container(name string, gpus int) v1.Container {
	c := v1.Container{Name: name}
	if gpus > 0 {
		c.Resources.Limits = v1.ResourceList{testResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
		c.Resources.Requests = c.Resources.Limits
	}
	return c
}

// gpuPod is a waiting pod of one container with the given number of GPUs.
func gpuPod(name string, gpus int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{container("main", gpus)}},
	}
}

func testOptions() *Options {
	return &Options{
		Resources: []string{testResource},
		Supported: []nvtopo.Policy{
			nvtopo.PolicyNone, nvtopo.PolicyBestEffort, nvtopo.PolicyRestricted, nvtopo.PolicySingleNUMANode,
		},
	}
}

func demandOf(tb testing.TB, pod *v1.Pod) *Demand {
	tb.Helper()
	r, err := ParseRequest(pod, testOptions())
	if err != nil {
		tb.Fatal(err)
	}
	return &Demand{Request: r, WantCPUs: true}
}
