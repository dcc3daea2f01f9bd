// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// testEnv is a node as the verifier sees it: its pods, kubelet's file and an API
// server that stores what is applied.
type testEnv struct {
	*Verifier
	path   string
	events *events.FakeRecorder
	kube   *fake.Clientset

	mu       sync.Mutex
	pods     []*v1.Pod
	topology *v1alpha1.NodeGPUTopology // as stored and as the informer has it
	applied  []time.Time
	verdict  error // of the next applies
	busy     bool
	statuses []interposer.ResourceStatus
}

func (e *testEnv) Pods() []*v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.pods)
}

func newTestEnv(t *testing.T, more func(*Config)) *testEnv {
	t.Helper()
	s := &testEnv{path: filepath.Join(t.TempDir(), kubelet.CheckpointName), events: events.NewFakeRecorder(100)}
	s.topology = &v1alpha1.NodeGPUTopology{
		ObjectMeta: metav1.ObjectMeta{Name: testNode, UID: "topology", ResourceVersion: "1"},
		Spec:       v1alpha1.NodeGPUTopologySpec{NodeUID: "node", GPUs: []v1alpha1.GPU{{ID: "1", Resource: gpu}}},
	}
	s.statuses = []interposer.ResourceStatus{{Resource: gpu, InnerConnected: true, Registered: true, Devices: 8, Healthy: 8}}
	s.kube = fake.NewClientset(testobj.Node(testNode).UID("node").Obj())
	dyn := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	dyn.PrependReactor("patch", v1alpha1.Resource, s.apply)
	cfg := Config{
		Node: testNode, CheckpointPath: s.path, Registerer: prometheus.NewRegistry(),
		Busy: func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.busy },
		Topology: func() *v1alpha1.NodeGPUTopology {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.topology.DeepCopy()
		},
	}
	if more != nil {
		more(&cfg)
	}
	var err error
	if s.Verifier, err = New(cfg, s, s.kube, dyn, s.events, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	s.SetResources(func() []interposer.ResourceStatus { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.statuses) })
	s.record(t) // kubelet has written the file when it has heard of devices
	return s
}

// apply stores the status as a server would, the verifier being the only writer.
func (e *testEnv) apply(a clienttesting.Action) (bool, runtime.Object, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.verdict != nil {
		return true, nil, e.verdict
	}
	patch, ok := a.(clienttesting.PatchAction)
	if !ok || patch.GetSubresource() != "status" {
		return true, nil, fmt.Errorf("unexpected request %v", a)
	}
	var sent struct {
		Status v1alpha1.NodeGPUTopologyStatus `json:"status"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
		return true, nil, err
	}
	e.applied = append(e.applied, time.Now())
	version, err := strconv.Atoi(e.topology.ResourceVersion)
	if err != nil {
		return true, nil, err
	}
	e.topology.Status, e.topology.ResourceVersion = sent.Status, strconv.Itoa(version+1)
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e.topology)
	return true, &unstructured.Unstructured{Object: u}, err
}

// set changes the environment.
func (e *testEnv) set(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	e.Trigger()
}

// record writes kubelet's file, as kubelet does.
func (e *testEnv) record(t *testing.T, records ...kubelet.Record) {
	t.Helper()
	var entries []checkpoint.PodDevicesEntry
	for _, r := range records {
		entries = append(entries, checkpoint.PodDevicesEntry{
			PodUID: string(r.PodUID), ContainerName: r.Container, ResourceName: r.Resource, DeviceIDs: checkpoint.DevicesPerNUMA{0: r.IDs},
		})
	}
	data, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(e.path+".new", e.path); err != nil {
		t.Fatal(err)
	}
}

func (e *testEnv) status() (list []string, enforced string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list = []string{}
	for i := range e.topology.Status.Allocations {
		a := &e.topology.Status.Allocations[i]
		list = append(list, fmt.Sprintf("%s %s %s %s", a.Pod, a.Container, strings.Join(a.GPUs, ","), a.State))
	}
	if c := meta.FindStatusCondition(e.topology.Status.Conditions, v1alpha1.ConditionEnforced); c != nil {
		enforced = string(c.Status) + " " + c.Reason
	}
	return list, enforced
}

func (e *testEnv) writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.applied)
}

// run lets the verifier run without the watch of the file, which would keep the
// bubble's time from passing, until the test is over.
func (e *testEnv) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { nodelease.Keep(ctx, e.clock, e.random, e.vouching, e.renew) })
	wg.Go(func() { e.runRounds(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func (e *testEnv) said() []string {
	out := []string{}
	for {
		select {
		case line := <-e.events.Events:
			out = append(out, line)
		default:
			return out
		}
	}
}

func (e *testEnv) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := e.kube.CoordinationV1().Leases("nvtopo-system").Get(t.Context(), "agent-"+testNode, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestSwap: a swap is published and reported once.
func TestSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.pods = []*v1.Pod{
			running("a").Annotation(allocation.Key, annotation(t, testNode, "a", "m=1,2")).Obj(), running("b").Annotation(allocation.Key, annotation(t, testNode, "b", "m=3,4")).Obj(), running("f").Obj(),
		}
		s.record(t, rec("a", "m=3,4"), rec("b", "m=1,2"), rec("f", "m=5"))
		s.run(t)
		time.Sleep(time.Minute)
		list, enforced := s.status()
		want := []string{"a m 3,4 swapped", "b m 1,2 swapped", "f m 5 foreign"}
		if diff := cmp.Diff(want, list); diff != "" || enforced != "True Steering" || s.writes() != 1 {
			t.Errorf("published (-want,+got):\n%s enforced %s, %d writes", diff, enforced, s.writes())
		}
		wantEvents := []string{
			"Warning GPUsSwapped container m: kubelet gave it 3, 4 of nvidia.com/gpu; they were chosen for container m of pod ns/b, which has those chosen for this one; the annotations will be corrected",
			"Warning GPUsSwapped container m: kubelet gave it 1, 2 of nvidia.com/gpu; they were chosen for container m of pod ns/a, which has those chosen for this one; the annotations will be corrected",
		}
		if diff := cmp.Diff(wantEvents, s.said()); diff != "" {
			t.Errorf("events (-want,+got):\n%s", diff)
		}
		s.set(func() { // repaired
			s.pods[0] = running("a").Annotation(allocation.Key, annotation(t, testNode, "a", "m=3,4")).Obj()
			s.pods[1] = running("b").Annotation(allocation.Key, annotation(t, testNode, "b", "m=1,2")).Obj()
		})
		time.Sleep(time.Minute)
		list, _ = s.status()
		want = []string{"a m 3,4 confirmed", "b m 1,2 confirmed", "f m 5 foreign"}
		if diff := cmp.Diff(want, list); diff != "" || s.writes() != 2 || len(s.said()) > 0 {
			t.Errorf("after the repair (-want,+got):\n%s %d writes", diff, s.writes())
		}
		for kind, n := range map[string]float64{v1alpha1.StateSwapped: 2, v1alpha1.StateForeign: 1, v1alpha1.StateReassigned: 0} {
			if got := testutil.ToFloat64(s.metrics.mismatches.WithLabelValues(kind)); got != n {
				t.Errorf("%v mismatches %s, want %v", got, kind, n)
			}
		}
		if got := testutil.ToFloat64(s.metrics.allocations.WithLabelValues(v1alpha1.StateConfirmed)); got != 2 {
			t.Errorf("%v confirmed, want 2", got)
		}
	})
}

// TestWriteCoalescing: a storm of changes becomes few writes.
func TestWriteCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.run(t)
		for i := range 1000 {
			s.record(t, rec("f", fmt.Sprintf("m=%d", i)))
			s.set(func() { s.pods = []*v1.Pod{running("f").Obj()} })
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if list, _ := s.status(); !slices.Equal(list, []string{"f m 999 foreign"}) {
			t.Errorf("published %v, want the last", list)
		}
		if n := s.writes(); n < 8 || n > 12 { // 2 s, 5 a second
			t.Errorf("%d writes in 2 s", n)
		}
		for i := 1; i < len(s.applied); i++ {
			if gap := s.applied[i].Sub(s.applied[i-1]); gap < 200*time.Millisecond {
				t.Errorf("writes %v apart", gap)
			}
		}
	})
}

// TestKubeletBackoff: the verifier asks nothing while kubelet waits.
func TestKubeletBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.busy = true
		start := time.Now()
		s.run(t)
		time.Sleep(100 * time.Millisecond)
		if s.writes() != 0 {
			t.Fatal("wrote while kubelet waits")
		}
		s.set(func() { s.busy = false })
		time.Sleep(2 * busyPoll)
		if s.writes() != 1 {
			t.Errorf("%d writes after kubelet has its answer", s.writes())
		}
		s.set(func() {
			s.busy = true
			s.pods = []*v1.Pod{running("f").Obj()}
		})
		s.record(t, rec("f", "m=1"))
		time.Sleep(time.Second)
		if s.writes() != 2 || time.Since(start) > 2*time.Second {
			t.Errorf("%d writes: kubelet that always waits must not keep it off", s.writes())
		}
	})
}

// TestLeaseRenewal: the Lease is renewed only while enforced.
func TestLeaseRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.statuses = nil
		s.run(t)
		time.Sleep(time.Minute)
		if _, enforced := s.status(); enforced != "False NoResourceRegistered" || s.lease(t) != nil {
			t.Fatalf("without a resource: enforced %s, Lease %v", enforced, s.lease(t))
		}
		good := []interposer.ResourceStatus{{Resource: gpu, InnerConnected: true, Registered: true}}
		s.set(func() { s.statuses = good })
		time.Sleep(time.Second)
		l := s.lease(t)
		if l == nil || *l.Spec.LeaseDurationSeconds != 120 || time.Since(l.Spec.RenewTime.Time) > time.Second || l.OwnerReferences[0].UID != "node" {
			t.Fatalf("after registration the Lease is %+v", l)
		}
		first := l.Spec.RenewTime.Time
		time.Sleep(36 * time.Second)
		renewed := s.lease(t).Spec.RenewTime.Time
		if d := renewed.Sub(first); d < 25*time.Second || d > 35*time.Second {
			t.Errorf("renewed after %v", d)
		}
		for name, tc := range map[string]struct {
			status interposer.ResourceStatus
			want   string
		}{
			"kubelet is gone":    {interposer.ResourceStatus{Resource: gpu, InnerConnected: true}, "False KubeletGone"},
			"the plugin is gone": {interposer.ResourceStatus{Resource: gpu, Registered: true}, "False DevicePluginGone"},
		} {
			s.set(func() { s.statuses = []interposer.ResourceStatus{tc.status} })
			time.Sleep(time.Second)
			last := s.lease(t).Spec.RenewTime.Time
			time.Sleep(5 * time.Minute)
			if _, enforced := s.status(); enforced != tc.want || !s.lease(t).Spec.RenewTime.Time.Equal(last) {
				t.Errorf("%s: enforced %s, want %s; the Lease went on for %v", name, enforced, tc.want, s.lease(t).Spec.RenewTime.Sub(last))
			}
			s.set(func() { s.statuses = good })
			time.Sleep(time.Second)
			if age := time.Since(s.lease(t).Spec.RenewTime.Time); age > time.Second {
				t.Errorf("%s: the Lease is %v old after it is back", name, age)
			}
		}
	})
}

// TestFailingWrites: failing writes stop the Lease and are tried again.
func TestFailingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.run(t)
		time.Sleep(time.Second)
		s.set(func() {
			s.verdict = errors.New("no server")
			s.pods = []*v1.Pod{running("f").Obj()}
		})
		s.record(t, rec("f", "m=1"))
		s.Trigger()
		time.Sleep(time.Second)
		last := s.lease(t).Spec.RenewTime.Time
		time.Sleep(5 * time.Minute)
		if !s.lease(t).Spec.RenewTime.Time.Equal(last) {
			t.Error("the Lease is renewed though nothing can be published")
		}
		s.set(func() { s.verdict = nil })
		time.Sleep(time.Second)
		if list, _ := s.status(); !slices.Equal(list, []string{"f m 1 foreign"}) || time.Since(s.lease(t).Spec.RenewTime.Time) > time.Second {
			t.Errorf("published %v, Lease %v old", list, time.Since(s.lease(t).Spec.RenewTime.Time))
		}
		if testutil.ToFloat64(s.metrics.failures) == 0 {
			t.Error("no failure was counted")
		}
	})
}

// TestRefusedRecord: a refused record keeps the last good one.
func TestRefusedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.pods = []*v1.Pod{running("f").Obj(), running("g").Obj()}
		s.record(t, rec("f", "m=1"))
		s.run(t)
		time.Sleep(time.Second)
		s.set(func() {
			s.verdict = apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind).GroupKind(), testNode, nil)
		})
		s.record(t, rec("f", "m=1"), rec("g", "m=2"))
		s.Trigger()
		time.Sleep(300 * time.Millisecond)
		s.set(func() { s.verdict = nil }) // it would take another record
		time.Sleep(2 * time.Second)
		list, enforced := s.status()
		if !slices.Equal(list, []string{"f m 1 foreign"}) || enforced != "False PublishFailing" {
			t.Errorf("published %v, enforced %s", list, enforced)
		}
		s.record(t, rec("g", "m=3"))
		s.Trigger()
		time.Sleep(time.Second)
		if list, enforced = s.status(); !slices.Equal(list, []string{"g m 3 foreign"}) || enforced != "True Steering" {
			t.Errorf("then published %v, enforced %s", list, enforced)
		}
	})
}

// TestUnreadableRecord: an unreadable record changes nothing.
func TestUnreadableRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.pods = []*v1.Pod{running("f").Obj()}
		s.record(t, rec("f", "m=1"))
		s.run(t)
		time.Sleep(time.Second)
		if err := os.WriteFile(s.path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Trigger()
		time.Sleep(time.Second)
		if list, enforced := s.status(); !slices.Equal(list, []string{"f m 1 foreign"}) || enforced != "False RecordUnreadable" {
			t.Errorf("published %v, enforced %s", list, enforced)
		}
	})
}

// TestForeignObject: the verifier waits for an object about this node.
func TestForeignObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		good := s.topology
		s.topology = nil
		s.run(t)
		time.Sleep(time.Minute)
		s.set(func() {
			s.topology = good.DeepCopy()
			s.topology.Spec.NodeUID = "earlier node"
		})
		time.Sleep(time.Minute)
		if s.writes() != 0 || s.lease(t) != nil {
			t.Fatalf("%d writes about another node", s.writes())
		}
		s.set(func() { s.topology = good })
		time.Sleep(time.Second)
		if s.writes() != 1 || s.lease(t) == nil {
			t.Errorf("%d writes, Lease %v", s.writes(), s.lease(t))
		}
	})
}

// TestForeignChanges: changes by others are put back.
func TestForeignChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.pods = []*v1.Pod{running("f").Obj()}
		s.record(t, rec("f", "m=1"))
		s.SetKubelet(&v1alpha1.Kubelet{TopologyManagerPolicy: "none"})
		s.SetPinned(metav1.Condition{Status: metav1.ConditionFalse, Reason: "Off", Message: "not asked for"})
		s.run(t)
		time.Sleep(time.Second)
		s.set(func() {
			s.topology.Status = v1alpha1.NodeGPUTopologyStatus{}
			s.topology.ResourceVersion = "100"
		})
		time.Sleep(time.Minute)
		list, enforced := s.status()
		if !slices.Equal(list, []string{"f m 1 foreign"}) || enforced != "True Steering" || s.topology.Status.Kubelet == nil ||
			meta.FindStatusCondition(s.topology.Status.Conditions, v1alpha1.ConditionPinned) == nil || s.writes() != 2 {
			t.Errorf("published %+v after %d writes", s.topology.Status, s.writes())
		}
		s.set(func() { s.topology.ResourceVersion = "101" }) // the exporter's part changed
		time.Sleep(time.Minute)
		if s.writes() != 2 {
			t.Errorf("%d writes though our part is as it should be", s.writes())
		}
	})
}

// TestStuckRound: a stuck round is unhealthy.
func TestStuckRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		gate := make(chan struct{}) // what a round waits for
		open, topology := true, s.cfg.Topology
		s.cfg.Topology = func() *v1alpha1.NodeGPUTopology {
			s.mu.Lock()
			pass := open
			s.mu.Unlock()
			if !pass {
				<-gate
			}
			return topology()
		}
		if err := s.Healthy(); err != nil {
			t.Errorf("before it runs: %v", err)
		}
		s.run(t)
		time.Sleep(10 * time.Minute)
		if err := s.Healthy(); err != nil {
			t.Errorf("while rounds end: %v", err)
		}
		s.set(func() { open = false })
		time.Sleep(2 * time.Minute)
		if err := s.Healthy(); err != nil {
			t.Errorf("after a moment: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if err := s.Healthy(); err == nil {
			t.Error("no round has ended for ten minutes and all is well")
		}
		s.set(func() { open = true })
		close(gate)
	})
}

// TestContainerWithoutRecord: a container without a record is reported once.
func TestContainerWithoutRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		started := func(uid types.UID, name string, gpus int) *v1.Pod {
			p := running(uid).Containers(testobj.Container(name, gpus)).Obj()
			p.Status.ContainerStatuses = []v1.ContainerStatus{{
				Name: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
			return p
		}
		waiting, byClaim := started("w", "m", 1), started("c", "m", 1)
		waiting.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		byClaim.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
		s.pods = []*v1.Pod{started("lost", "m", 1), started("good", "m", 1), started("plain", "m", 0), waiting, byClaim}
		s.record(t, rec("good", "m=1"))
		s.run(t)
		time.Sleep(settled / 2)
		if said := s.said(); len(said) > 0 {
			t.Errorf("said at once: %q", said)
		}
		time.Sleep(10 * time.Minute)
		said := s.said()
		if len(said) != 1 || !strings.HasPrefix(said[0], "Warning GPUsUnrecorded container m is running, but") {
			t.Errorf("said %q", said)
		}
		if got := testutil.ToFloat64(s.metrics.mismatches.WithLabelValues(kindUnrecorded)); got != 1 {
			t.Errorf("%v counted", got)
		}
		if list, _ := s.status(); !slices.Equal(list, []string{"good m 1 foreign"}) {
			t.Errorf("published %v", list)
		}
	})
}

// TestContainerReports: what is said of a container is reported once for each reason.
func TestContainerReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		pod := running("a").Obj()
		s.pods = []*v1.Pod{pod}
		s.run(t)
		for range 3 {
			s.Escaped(pod, "m", "asks for all GPUs")
		}
		s.Escaped(pod, "n", "asks for all GPUs")
		for range 2 {
			s.Misbound(pod, "n", "GOMP_CPU_AFFINITY names CPUs 0-7; the container may use 8-15")
		}
		time.Sleep(time.Minute)
		want := []string{
			"Warning GPUsEscaped container m: asks for all GPUs", "Warning GPUsEscaped container n: asks for all GPUs",
			"Warning ThreadsOutsideCPUs container n: GOMP_CPU_AFFINITY names CPUs 0-7; the container may use 8-15; leave the variable out, or set OMP_PLACES=cores",
		}
		if diff := cmp.Diff(want, s.said()); diff != "" {
			t.Errorf("events (-want,+got):\n%s", diff)
		}
		s.set(func() { s.pods = nil })
		time.Sleep(time.Minute)
		s.Verifier.mu.Lock()
		defer s.Verifier.mu.Unlock()
		if len(s.containers) != 0 {
			t.Errorf("%v is remembered of a pod that is gone", s.containers)
		}
	})
}

// A record that disappears under a kubelet that has devices was removed by
// somebody: what it said stays published, or the GPUs of running pods look free.
func TestRemovedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestEnv(t, nil)
		s.pods = []*v1.Pod{running("f").Obj()}
		s.record(t, rec("f", "m=1"))
		s.run(t)
		time.Sleep(time.Second)
		want, _ := s.status()
		if err := os.Remove(s.path); err != nil {
			t.Fatal(err)
		}
		s.Trigger()
		time.Sleep(time.Second)
		got, enforced := s.status()
		if diff := cmp.Diff(want, got); diff != "" || len(got) != 1 {
			t.Errorf("allocations after the file is gone (-want,+got):\n%s", diff)
		}
		if enforced == string(metav1.ConditionTrue) {
			t.Error("the node is enforced though nobody can read what kubelet recorded")
		}
	})
}

// TestEndedPodRequests: ended pods are asked for a few at a time.
func TestEndedPodRequests(t *testing.T) {
	book := newPodBook(testNode)
	active := &countingActive{}
	var records []kubelet.Record
	for i := range 3 * maxAsks {
		uid := types.UID(strconv.Itoa(i))
		book.pages[uid] = &page{named: true, view: podView{uid: uid, namespace: "ns", name: "p" + strconv.Itoa(i)}}
		records = append(records, kubelet.Record{PodUID: uid, Container: "m", Resource: gpu, IDs: []string{strconv.Itoa(i)}})
	}
	now := time.Unix(1000, 0)
	for round := range 3 {
		counting, again := book.counting(t.Context(), records, active, now)
		if want := maxAsks * (round + 1); active.asked != want {
			t.Errorf("round %d: kubelet was asked %d times, want %d", round, active.asked, want)
		}
		if want := len(records) - maxAsks*(round+1); len(counting) != want {
			t.Errorf("round %d: %d pods count, want %d", round, len(counting), want)
		}
		if round < 2 && again != firstAsk {
			t.Errorf("round %d: look again after %v, want %v", round, again, firstAsk)
		}
	}
}

// countingActive is a kubelet that has let every pod go.
type countingActive struct{ asked int }

func (*countingActive) Name(context.Context, string, types.UID) (namespace, name string, ok bool) {
	return "", "", false
}

func (c *countingActive) Active(context.Context, types.UID, string, string) (bool, error) {
	c.asked++
	return false, nil
}

// TestHangingRecord: a record that cannot be read is published as such. The file system hangs, so
// that nobody can say what kubelet recorded. That is published, instead of a Lease renewed for what
// is old, and passes.
func TestHangingRecord(t *testing.T) {
	s := newTestEnv(t, nil)
	round := func(want string) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.round(t.Context()) // the status says what is asked for
		}()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatal("the round stands still")
		}
		if _, enforced := s.status(); enforced != want {
			t.Errorf("Enforced is %q, want %q", enforced, want)
		}
	}
	round("True " + ReasonSteering)
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(s.path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	round("False " + ReasonRecordUnreadable)
	if s.vouched.Load() != nil {
		t.Error("the Lease is renewed for a record that nobody read")
	}
	s.record(t)
	if err := pipe.Close(); err != nil { // who reads it gets an end
		t.Fatal(err)
	}
	testkit.Soon(t, "the record is read", func() bool {
		_, err := s.Verifier.record.Read(t.Context(), recordWait)
		return err == nil
	})
	round("True " + ReasonSteering)
}
