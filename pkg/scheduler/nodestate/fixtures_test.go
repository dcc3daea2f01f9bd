// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

const (
	testResource   = "nvidia.com/gpu"
	requestTimeout = 60 * time.Second
)

// tickClock is a clock whose time the test sets.
type tickClock struct {
	clock.WithTicker
	now time.Time
}

func (c *tickClock) Now() time.Time                  { return c.now }
func (c *tickClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func testConfig() Config {
	return Config{Namespace: "nvtopo-system", Weights: nvtopo.DefaultWeights(), RequestTimeout: requestTimeout, LeaderTerm: 15 * time.Second}
}

// podDeleted delivers the event of a pod's end, of which only the UID matters.
func (s *State) podDeleted(uid types.UID) { s.handlers.carryOut(goneEffects(uid)) }

// doubts returns the doubtful reservations that are old enough to be decided.
func (s *State) doubts() []*reservations.Reservation {
	rs := s.Allocations.reservations.ToResolve()
	for _, r := range rs {
		s.Allocations.reservations.Resolved(r)
	}
	return rs
}

// reservationsOf returns the reservations of a pod, in the order in which they were made.
func (s *State) reservationsOf(uid types.UID) []reservations.Listed {
	return slices.DeleteFunc(s.Allocations.reservations.List(), func(r reservations.Listed) bool { return r.UID != uid })
}

// topologyOf returns the NodeGPUTopology of a catalogue machine.
func topologyOf(tb testing.TB, name, kind string) *v1alpha1.NodeGPUTopology {
	tb.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		tb.Fatal(err)
	}
	obj := v1alpha1.FromGraph(name, testResource, g)
	obj.UID, obj.ResourceVersion = types.UID("topology-"+name), "1"
	obj.Spec.NodeUID = types.UID("node-uid-" + name)
	return obj
}

// addNode gives the State a node whose exporter and agent are alive for a day.
func addNode(tb testing.TB, s *State, name, kind string) *v1.Node {
	tb.Helper()
	obj := topologyOf(tb, name, kind)
	if _, err := s.Graphs.Apply(obj); err != nil {
		tb.Fatal(err)
	}
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		s.PodDevices.leases.Set(lease(prefix+name, s.clock.Now(), 365*24*time.Hour), s.clock.Now())
	}
	return schedtest.Node(name).UID(string(obj.Spec.NodeUID)).GPUs(len(obj.Spec.GPUs)).CPU("512").Memory("4Ti").Obj()
}

func lease(name string, renewed time.Time, d time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(d / time.Second)),
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

func sidecar(name string, gpus int) v1.Container {
	c := container(name, gpus)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

func testOptions() *podrequest.Options {
	return &podrequest.Options{
		Resources: []string{testResource},
		Supported: []nvtopo.Policy{
			nvtopo.PolicyNone, nvtopo.PolicyBestEffort, nvtopo.PolicyRestricted, nvtopo.PolicySingleNUMANode,
		},
	}
}

func demandOf(tb testing.TB, pod *v1.Pod) *placement.Demand {
	tb.Helper()
	r, err := podrequest.Parse(pod, testOptions())
	if err != nil {
		tb.Fatal(err)
	}
	return &placement.Demand{Request: r, WantCPUs: true}
}
