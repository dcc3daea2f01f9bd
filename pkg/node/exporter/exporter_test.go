// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// uniform is a graph of GPUs on two NUMA nodes, joined by links of one class.
func uniform(tb testing.TB, n int, model, class string) *nvtopo.Graph {
	tb.Helper()
	var gpus []nvtopo.GPU
	for i := range n {
		node := 0
		if i >= (n+1)/2 {
			node = 1
		}
		gpus = append(gpus, nvtopo.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Model: model, Memory: 80 << 30, NUMANode: node})
	}
	nodes := []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 1, CPUs: nvtopo.NewCPUSet(2, 3)}}
	c, err := nvtopo.ParseClass(class)
	if err != nil {
		tb.Fatal(err)
	}
	links := map[[2]int]nvtopo.Link{}
	for j := range n {
		for i := range j {
			links[[2]int{i, j}] = nvtopo.NewLink(c, nvtopo.PCIeSYS, 5, 25_000_000, true)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nodes, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// scripted is a source that answers what the test last set.
type scripted struct {
	graph    *nvtopo.Graph
	problems []Problem
	err      error
	reads    atomic.Int64
	mu       sync.Mutex
	block    chan struct{} // when set, Graph waits until it is closed; guarded by mu
	events   chan Event
	recalled *nvtopo.Graph
}

func (s *scripted) Graph(ctx context.Context) (*nvtopo.Graph, []Problem, error) {
	s.reads.Add(1)
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	return s.graph, s.problems, nil
}

// show changes what is read while readings are taken.
func (s *scripted) show(g *nvtopo.Graph) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graph = g
}

// fail makes readings fail while they are taken.
func (s *scripted) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// hold makes readings wait until the channel is closed; nil lets them through.
func (s *scripted) hold(block chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = block
}

func (s *scripted) Events(context.Context) <-chan Event { return s.events }
func (s *scripted) Remember(g *nvtopo.Graph)            { s.recalled = g }

type testEnv struct {
	api      *stubAPI
	src      *scripted
	clk      *clocktesting.FakeClock
	cfg      Config
	exporter *Exporter
}

func newTestEnv(t *testing.T, cfg Config) *testEnv {
	t.Helper()
	r := &testEnv{
		api: newStub(), src: &scripted{graph: uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV18")},
		clk: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), cfg: cfg,
	}
	r.cfg.NodeName = "n1"
	r.restart(t)
	return r
}

// restart replaces the exporter by a new one, as after a crash.
func (e *testEnv) restart(t *testing.T) {
	t.Helper()
	kube, dyn := e.api.clients(t)
	exporter, err := New(e.cfg, e.src, kube, dyn, WithClock(e.clk))
	if err != nil {
		t.Fatal(err)
	}
	e.exporter = exporter
}

func (e *testEnv) publish(t *testing.T) {
	t.Helper()
	if err := e.exporter.PublishOnce(t.Context()); err != nil {
		t.Fatalf("PublishOnce: %v", err)
	}
}

// expect publishes once and compares the requests.
func (e *testEnv) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	e.api.took()
	e.publish(t)
	if diff := cmp.Diff(want, e.api.took()); diff != "" {
		t.Errorf("requests %s (-want,+got):\n%s", when, diff)
	}
}

const (
	getNode     = "GET " + nodePath
	getTopology = "GET " + topologyPath
	putSpec     = "PATCH " + topologyPath
	putStatus   = "PATCH " + topologyPath + "/status"
	putLabels   = "PATCH " + nodePath // of the aliases, and then of ours
	putLease    = "PATCH " + leasePath
	putAgent    = "PATCH " + agentPath
)

func readyOf(t *testing.T, top *v1alpha1.NodeGPUTopology) metav1.Condition {
	t.Helper()
	if top == nil {
		t.Fatal("there is no NodeGPUTopology")
	}
	c := meta.FindStatusCondition(top.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		t.Fatal("there is no Ready condition")
	}
	return *c
}

// TestFirstPublish: the first publish writes everything by server-side apply.
func TestFirstPublish(t *testing.T) {
	r := newTestEnv(t, Config{})
	if err := r.exporter.PublishOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{topologyPath, topologyPath + "/status", nodePath, leasePath} {
		req := r.api.last(t, http.MethodPatch, path)
		if req.contentType != "application/apply-patch+yaml" || req.query != "fieldManager=nvtopo-exporter&force=true" {
			t.Errorf("%s: content type %s, query %s", path, req.contentType, req.query)
		}
	}
	spec := r.api.last(t, http.MethodPatch, topologyPath).body
	wantMeta := map[string]any{
		"name":            "n1",
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"}},
	}
	if diff := cmp.Diff(wantMeta, spec["metadata"]); diff != "" {
		t.Errorf("metadata (-want,+got):\n%s", diff)
	}
	if _, ok := spec["status"]; ok {
		t.Error("the spec was applied together with a status")
	}
	status := r.api.last(t, http.MethodPatch, topologyPath+"/status").body
	if diff := cmp.Diff(map[string]any{"name": "n1"}, status["metadata"]); diff != "" {
		t.Errorf("metadata of the status (-want,+got):\n%s", diff)
	}
	if _, ok := status["spec"]; ok {
		t.Error("the status was applied together with a spec")
	}
	for _, key := range []string{"kubelet", "allocations"} {
		if _, ok := status["status"].(map[string]any)[key]; ok {
			t.Errorf("status.%s is the agent's and was applied", key)
		}
	}
	if uid := r.api.last(t, http.MethodPatch, nodePath).body["metadata"].(map[string]any)["uid"]; uid != "uid-1" {
		t.Errorf("labels were applied to a Node of UID %v", uid)
	}
	lease := r.api.last(t, http.MethodPatch, leasePath).body
	wantLease := map[string]any{"holderIdentity": "n1", "leaseDurationSeconds": 120.0, "renewTime": "2023-11-14T22:13:20.000000Z"}
	if diff := cmp.Diff(wantLease, lease["spec"]); diff != "" {
		t.Errorf("Lease (-want,+got):\n%s", diff)
	}
	top := r.api.topology(t)
	if top.Spec.NodeUID != "uid-1" || top.Spec.BootID != "boot-1" {
		t.Errorf("nodeUID %q, bootID %q", top.Spec.NodeUID, top.Spec.BootID)
	}
	graphs, err := top.Graphs()
	if err != nil {
		t.Fatalf("what was published is no graph: %v", err)
	}
	if got, want := graphs["nvidia.com/gpu"].ClassKey(), r.src.graph.ClassKey(); got != want {
		t.Errorf("the published graph is of class %s, the source's of %s", got, want)
	}
	if c := readyOf(t, top); c.Status != metav1.ConditionTrue || c.Reason != ReasonRead {
		t.Errorf("Ready is %s (%s)", c.Status, c.Reason)
	}
}

// TestUnchangedObject: only changes are written.
func TestUnchangedObject(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.expect(t, "at first", getNode, getTopology, putSpec, putStatus, putLabels, putLabels, putLease)
	r.expect(t, "without a change", getTopology, putLease)

	sick := uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV18")
	sick.GPUs[3].Unhealthy = "Xid 79"
	r.src.graph = sick
	r.expect(t, "when a GPU falls ill", getTopology, putStatus, putLease)
	top := r.api.topology(t)
	if h := healthOf(top, "GPU-3"); h == nil || h.Healthy || h.Reason != "Xid 79" || top.Status.Summary.Healthy != 7 {
		t.Errorf("health %+v, summary %+v", h, top.Status.Summary)
	}

	r.src.problems = []Problem{{GPU: "GPU-2", Text: "2 of 18 NVLinks are down"}, {GPU: "GPU-1", Text: "x"}}
	r.expect(t, "when problems turn up", getTopology, putStatus, putLease)
	if c := readyOf(t, r.api.topology(t)); c.Status != metav1.ConditionTrue || c.Message != "GPU-1: x; GPU-2: 2 of 18 NVLinks are down" {
		t.Errorf("Ready: %s, %q", c.Status, c.Message)
	}
	slices.Reverse(r.src.problems)
	r.expect(t, "when they come in another order", getTopology, putLease)

	r.src.graph, r.src.problems = uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV16"), nil
	r.expect(t, "when links change", getTopology, putStatus, putSpec, putLabels, putLabels, putLease)

	r.restart(t)
	r.expect(t, "after a restart without a change", getNode, getTopology, putLease)
	if r.src.recalled == nil || r.src.recalled.Len() != 8 {
		t.Error("the source was not told of the published graph after the restart")
	}
}

// TestEarlierBootGraph: a graph of an earlier boot is not recalled and is replaced.
func TestEarlierBootGraph(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	r.api.edit(nodePath, func(o map[string]any) { o["status"].(map[string]any)["nodeInfo"].(map[string]any)["bootID"] = "boot-2" })
	r.restart(t)
	r.expect(t, "after a reboot", getNode, getTopology, putSpec, putLease)
	if r.src.recalled != nil {
		t.Error("the source was told of the earlier boot's graph")
	}
	if got := r.api.topology(t).Spec.BootID; got != "boot-2" {
		t.Errorf("bootID = %s", got)
	}
}

// TestReadErrorKeepsGraph: a read error keeps the last good topology.
func TestReadErrorKeepsGraph(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	before := r.api.topology(t)
	r.clk.Step(time.Minute)
	r.src.err = errors.New("driver stopped answering")
	r.api.took()
	err := r.exporter.PublishOnce(t.Context())
	if err == nil || !strings.Contains(err.Error(), "driver stopped answering") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{getTopology, putStatus, putLease}, r.api.took()); diff != "" {
		t.Errorf("requests (-want,+got):\n%s", diff)
	}
	after := r.api.topology(t)
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("spec changed (-before,+after):\n%s", diff)
	}
	if diff := cmp.Diff(before.Status.GPUHealth, after.Status.GPUHealth); diff != "" {
		t.Errorf("health changed (-before,+after):\n%s", diff)
	}
	c := readyOf(t, after)
	want := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: ReasonReadFailed,
		Message: `read the topology of node "n1": driver stopped answering`, LastTransitionTime: c.LastTransitionTime,
	}
	if diff := cmp.Diff(want, c); diff != "" || !c.LastTransitionTime.Time.Equal(r.clk.Now()) {
		t.Errorf("Ready since %s (-want,+got):\n%s", c.LastTransitionTime, diff)
	}

	r.clk.Step(time.Minute)
	r.src.err = &nvml.Error{Call: "nvmlInit", Kind: nvml.KindNoDriver, Text: "Driver Not Loaded"}
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("a second failure gave no error")
	}
	again := readyOf(t, r.api.topology(t))
	if again.Reason != ReasonNoDriver || !again.LastTransitionTime.Equal(&c.LastTransitionTime) {
		t.Errorf("Ready is %s since %s, want %s since %s", again.Reason, again.LastTransitionTime, ReasonNoDriver, c.LastTransitionTime)
	}

	r.src.err = nil
	r.expect(t, "when the driver is back", getTopology, putStatus, putLease)
	if c := readyOf(t, r.api.topology(t)); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %s", c.Status)
	}
}

func TestReadErrorAtStart(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.src.err = errors.New("no answer")
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff([]string{getNode, getTopology}, r.api.took()); diff != "" {
		t.Errorf("requests without an object (-want,+got):\n%s", diff)
	}
	// With an object of an earlier process: it is marked, and nothing vouches for it.
	r.src.err = nil
	r.publish(t)
	r.src.err = errors.New("no answer")
	r.restart(t)
	r.api.took()
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff([]string{getNode, getTopology, putStatus}, r.api.took()); diff != "" {
		t.Errorf("requests with an object (-want,+got):\n%s", diff)
	}
	top := r.api.topology(t)
	if c := readyOf(t, top); c.Status != metav1.ConditionFalse || top.Status.Summary.GPUs != 8 || len(top.Spec.GPUs) != 8 {
		t.Errorf("Ready %s, summary %+v, %d GPUs", c.Status, top.Status.Summary, len(top.Spec.GPUs))
	}
}

// TestForeignChanges: foreign changes are mended at resync.
func TestForeignChanges(t *testing.T) {
	r := newTestEnv(t, Config{Resync: time.Minute})
	r.publish(t)
	r.api.edit(nodePath, func(o map[string]any) {
		o["metadata"].(map[string]any)["labels"].(map[string]any)[LabelCount] = "80"
	})
	r.expect(t, "before", getTopology, putLease)
	r.clk.Step(time.Minute)
	r.expect(t, "at resync", getNode, getTopology, putLabels, putLease)
	if got := r.api.labels()[LabelCount]; got != "8" {
		t.Errorf("%s = %s", LabelCount, got)
	}
}

// TestDisplacedObject: a displaced object is mended in the next round. It does to the object what
// leaves the node without its graph, or with a wrong one.
func TestDisplacedObject(t *testing.T) {
	meta := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	tests := map[string]struct {
		change func(r *testEnv)
		want   []string
	}{
		"deleted": {func(r *testEnv) { delete(r.api.objects, topologyPath) }, []string{putSpec, putStatus, putLease}},
		"made anew by somebody": {func(r *testEnv) {
			o := r.api.objects[topologyPath]
			meta(o)["uid"] = "another"
			delete(o, "status")
		}, []string{putStatus, putLease}},
		"changed by somebody": {func(r *testEnv) {
			o := r.api.objects[topologyPath]
			meta(o)["generation"] = int64(7)
			o["spec"].(map[string]any)["gpus"].([]any)[0].(map[string]any)["model"] = "better"
		}, []string{putSpec, putLease}},
		"deleted with its definition": {func(r *testEnv) {
			delete(r.api.objects, topologyPath)
			asked := false
			r.api.refuse = func(q request) *metav1.Status {
				if q.path == topologyPath && !asked {
					asked = true
					return &metav1.Status{Code: http.StatusNotFound, Message: "404 page not found"}
				}
				return nil
			}
		}, []string{putSpec, putStatus, putLease}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, Config{Resync: time.Hour})
			r.publish(t)
			want := r.api.topology(t)
			r.api.took()
			r.api.mu.Lock()
			tc.change(r)
			r.api.mu.Unlock()
			r.expect(t, "in the next round", append([]string{getTopology, getNode, getTopology}, tc.want...)...)
			got := r.api.topology(t)
			got.UID, got.Generation = want.UID, want.Generation
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is published (-want,+got):\n%s", diff)
			}
			r.expect(t, "in the one after", getTopology, putLease)
		})
	}
}

// TestLostOwnerReference: a lost owner reference is restored.
func TestLostOwnerReference(t *testing.T) {
	r := newTestEnv(t, Config{Resync: time.Minute})
	r.publish(t)
	r.api.edit(topologyPath, func(o map[string]any) { delete(o["metadata"].(map[string]any), "ownerReferences") })
	r.clk.Step(time.Minute)
	r.expect(t, "at resync", getNode, getTopology, putSpec, putLease)
}

// TestReplacedNode: a replaced node is taken over.
func TestReplacedNode(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	r.api.mu.Lock()
	r.api.objects[nodePath] = nodeObject("uid-2", "boot-2")
	r.api.mu.Unlock()
	// The first write that carries the old UID is refused; then all is read again.
	r.src.graph = uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV16")
	err := r.exporter.PublishOnce(t.Context())
	if err == nil || !strings.Contains(err.Error(), `apply labels to Node "n1"`) {
		t.Errorf("error %v, want one about the Node", err)
	}
	r.publish(t)
	top := r.api.topology(t)
	if top.Spec.NodeUID != "uid-2" || top.Spec.BootID != "boot-2" || len(top.OwnerReferences) != 1 || top.OwnerReferences[0].UID != "uid-2" {
		t.Errorf("nodeUID %s, bootID %s, owners %v", top.Spec.NodeUID, top.Spec.BootID, top.OwnerReferences)
	}
	if r.api.labels()[LabelInterconnect] != "NV16" {
		t.Errorf("labels of the new Node: %v", r.api.labels())
	}
	if refs := r.api.objects[leasePath]["metadata"].(map[string]any)["ownerReferences"].([]any); refs[0].(map[string]any)["uid"] != "uid-2" {
		t.Errorf("the Lease belongs to %v", refs)
	}
}

// An API server that stores something else must not be written to every round.
func TestAlteredValue(t *testing.T) {
	r := newTestEnv(t, Config{Resync: time.Minute})
	r.api.mutate = func(path string, obj map[string]any) {
		switch path {
		case topologyPath:
			obj["spec"].(map[string]any)["bootID"] = "pruned"
			if st, ok := obj["status"].(map[string]any); ok {
				delete(st, "summary")
			}
		case nodePath:
			delete(obj["metadata"].(map[string]any)["labels"].(map[string]any), LabelProduct)
		}
	}
	r.publish(t)
	r.expect(t, "in the next round", getTopology, putLease)
	r.clk.Step(time.Minute)
	r.expect(t, "at resync", getNode, getTopology, putStatus, putSpec, putLabels, putLease)
	r.expect(t, "after it", getTopology, putLease)
}

// TestInstallationErrors: mistakes of the installation are named.
func TestInstallationErrors(t *testing.T) {
	forbidden := func(path string) func(request) *metav1.Status {
		return func(r request) *metav1.Status {
			if r.method == http.MethodPatch && r.path == path {
				return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "user cannot patch")
			}
			return nil
		}
	}
	tests := map[string]struct {
		refuse    func(request) *metav1.Status
		want      string
		wantLease bool
	}{
		"the CRD is missing": {
			refuse: func(r request) *metav1.Status {
				if strings.HasPrefix(r.path, "/apis/topology.nvtopo.dev/") {
					return failure(http.StatusNotFound, "", "404 page not found")
				}
				return nil
			},
			want: "install the CRD nodegputopologies.topology.nvtopo.dev",
		},
		"the CRD is older than the exporter": {
			refuse: func(r request) *metav1.Status {
				if r.method == http.MethodPatch && r.path == topologyPath {
					return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
						"failed to create typed patch object (/n1; topology.nvtopo.dev/v1alpha1, Kind=NodeGPUTopology): errors:\n  .spec.linkRows: field not declared in schema")
				}
				return nil
			},
			want: `apply the spec of NodeGPUTopology "n1": the CRD is not the one of this exporter's version, apply that: failed to create typed patch object`,
		},
		"the Node is missing": {
			refuse: func(r request) *metav1.Status {
				if r.path == nodePath {
					return failure(http.StatusNotFound, metav1.StatusReasonNotFound, `nodes "n1" not found`)
				}
				return nil
			},
			want: `get Node "n1": nodes "n1" not found`,
		},
		"the spec may not be written": {
			refuse: forbidden(topologyPath), want: `apply the spec of NodeGPUTopology "n1": not allowed, check the exporter's RBAC`,
		},
		"the status may not be written": {
			refuse: forbidden(topologyPath + "/status"), want: `apply the status of NodeGPUTopology "n1": not allowed`,
		},
		"labels may not be written: the topology is good all the same": {
			refuse: forbidden(nodePath), want: `apply labels to Node "n1": not allowed`, wantLease: true,
		},
		"the Lease may not be written": {
			refuse: forbidden(leasePath), want: `apply Lease "nvtopo-system/exporter-n1": not allowed`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, Config{})
			r.api.refuse = tc.refuse
			err := r.exporter.PublishOnce(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant it to contain %s", err, tc.want)
			}
			if _, ok := r.api.objects[leasePath]; ok != tc.wantLease {
				t.Errorf("a Lease was written: %v, want %v", ok, tc.wantLease)
			}
			r.api.refuse = nil
			r.publish(t) // and it mends itself
			if c := readyOf(t, r.api.topology(t)); c.Status != metav1.ConditionTrue {
				t.Errorf("Ready is %s after the mistake was mended", c.Status)
			}
		})
	}
}

// The Lease vouches for the object: it stops when a change cannot be published.
func TestLeaseOfWrongObject(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	r.src.graph = uniform(t, 4, "NVIDIA H100 80GB HBM3", "NV18")
	r.api.refuse = func(q request) *metav1.Status {
		if q.method == http.MethodPatch && q.path == topologyPath {
			return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd is gone")
		}
		return nil
	}
	r.api.took()
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	if got := r.api.took(); slices.Contains(got, putLease) {
		t.Errorf("the Lease was renewed: %v", got)
	}
	r.api.refuse = nil
	r.expect(t, "when it can be written", getNode, getTopology, putSpec, putLabels, putLabels, putLease)
}

// TestAPIServerOutage: an outage of the API server does not stop the readings.
func TestAPIServerOutage(t *testing.T) {
	r := newTestEnv(t, Config{Resync: time.Minute})
	r.publish(t)
	r.api.refuse = func(request) *metav1.Status {
		return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
	}
	r.clk.Step(time.Hour)
	before := r.src.reads.Load()
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	if r.src.reads.Load() != before+1 {
		t.Errorf("%d readings during the outage", r.src.reads.Load()-before)
	}
}

// TestSimulatedEnforcement: simulated nodes are enforced.
func TestSimulatedEnforcement(t *testing.T) {
	r := newTestEnv(t, Config{AssumeEnforced: true})
	r.expect(t, "at first", getNode, getTopology, putSpec, putStatus, putLabels, putLabels, putLease, putAgent)
	top := r.api.topology(t)
	if !meta.IsStatusConditionTrue(top.Status.Conditions, v1alpha1.ConditionEnforced) {
		t.Errorf("conditions: %+v", top.Status.Conditions)
	}
	r.src.err = errors.New("no answer")
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	if !meta.IsStatusConditionTrue(r.api.topology(t).Status.Conditions, v1alpha1.ConditionEnforced) {
		t.Error("a failed reading took the Enforced condition away")
	}
}

// TestNewErrors: New checks its config.
func TestNewErrors(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no node name":      {},
		"a bad node name":   {NodeName: "Node_1"},
		"a bad resource":    {NodeName: "n1", Resource: "a/b/c"},
		"negative interval": {NodeName: "n1", Interval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(cfg, Static(nil), nil, nil); err == nil {
				t.Errorf("%+v was accepted", cfg)
			}
		})
	}
}
