// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// writes lists the write requests for pods the fake API server got.
func writes(client *fake.Clientset) []string {
	var out []string
	for _, a := range client.Actions() {
		if a.GetResource().Resource == "pods" && a.GetVerb() != "list" && a.GetVerb() != "watch" && a.GetVerb() != "get" {
			out = append(out, strings.TrimSuffix(a.GetVerb()+" pods/"+a.GetSubresource(), "/"))
		}
	}
	return out
}

// TestPodCycle: a pod passes the extension points.
func TestPodCycle(t *testing.T) {
	both := []string{topology.Name, numa.Name}
	tests := map[string]struct {
		plugins     []string
		write       string
		gpus        int
		annotations map[string]string
		patchFails  error
		patchFirst  error // of the first attempt only
		bindFails   error
		// unreserve is called at the end, as after a failure.
		unreserve bool

		wantPreFilter fwk.Code
		wantFilter    fwk.Code
		wantReserve   fwk.Code
		wantPreFlight fwk.Code
		wantPreBind   fwk.Code
		wantBind      fwk.Code
		wantWrites    []string
		wantPhase     string // of the reservation at the end
	}{
		"both plugins make one choice and one PATCH": {
			plugins: both, write: "PreBind", gpus: 2, wantBind: fwk.Skip,
			wantWrites: []string{"patch pods"}, wantPhase: "binding",
		},
		"TopologyAware alone": {
			plugins: []string{topology.Name}, write: "PreBind", gpus: 2, wantBind: fwk.Skip,
			wantWrites: []string{"patch pods"}, wantPhase: "binding",
		},
		"NUMAAffinity alone": {
			plugins: []string{numa.Name}, write: "PreBind", gpus: 2, wantBind: fwk.Skip,
			wantWrites: []string{"patch pods"}, wantPhase: "binding",
		},
		"the choice on the Binding": {
			plugins: both, write: "Binding", gpus: 2, wantPreFlight: fwk.Skip,
			wantWrites: []string{"create pods/binding"}, wantPhase: "binding",
		},
		"a pod without GPUs passes by": {
			plugins: both, write: "PreBind", wantPreFlight: fwk.Skip, wantBind: fwk.Skip,
		},
		"a pod without GPUs but with a NUMA policy is NUMAAffinity's": {
			plugins: both, write: "PreBind", annotations: map[string]string{podrequest.NUMAAffinityKey: "required"}, wantBind: fwk.Skip,
			wantWrites: []string{"patch pods"}, wantPhase: "binding",
		},
		"an annotation nobody can read is not resolvable": {
			plugins: both, write: "PreBind", gpus: 1, annotations: map[string]string{podrequest.MinLinkKey: "fast"},
			wantPreFilter: fwk.UnschedulableAndUnresolvable,
		},
		"what the empty node has not is not resolvable": {
			plugins: both, write: "PreBind", gpus: 8, annotations: map[string]string{podrequest.MinLinkKey: "NVLINK"},
			wantFilter: fwk.UnschedulableAndUnresolvable,
		},
		"a refused PATCH is certain": {
			plugins: both, write: "PreBind", gpus: 2, patchFails: refusal, unreserve: true, wantPreBind: fwk.Error,
			wantWrites: []string{"patch pods"},
		},
		"a PATCH without an answer is in doubt": {
			plugins: both, write: "PreBind", gpus: 2, patchFails: errors.New("connection reset"), unreserve: true, wantPreBind: fwk.Error,
			wantWrites: []string{"patch pods"}, wantPhase: "doubtful",
		},
		"a PATCH that was refused only the second time is in doubt": {
			plugins: both, write: "PreBind", gpus: 2, patchFirst: apierrors.NewInternalError(errors.New("etcd")), patchFails: refusal, unreserve: true,
			wantPreBind: fwk.Error, wantWrites: []string{"patch pods", "patch pods"}, wantPhase: "doubtful",
		},
		"after PreBind nobody knows whether the pod was bound": {
			plugins: both, write: "PreBind", gpus: 2, unreserve: true, wantBind: fwk.Skip,
			wantWrites: []string{"patch pods"}, wantPhase: "doubtful",
		},
		"a refused Binding is certain": {
			plugins: both, write: "Binding", gpus: 2, bindFails: refusal, unreserve: true, wantPreFlight: fwk.Skip, wantBind: fwk.Error,
			wantWrites: []string{"create pods/binding"},
		},
		"a Binding without an answer is in doubt": {
			plugins: both, write: "Binding", gpus: 2, bindFails: errors.New("connection reset"), unreserve: true,
			wantPreFlight: fwk.Skip, wantBind: fwk.Error, wantWrites: []string{"create pods/binding"}, wantPhase: "doubtful",
		},
	}
	for name, tc := range maps.Clone(tests) {
		if tc.plugins = reversed(tc.plugins); len(tc.plugins) == 2 {
			tests[name+"; NUMAAffinity runs first"] = tc
		}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t, tc.write, tc.plugins...)
			pod := b.pod("p", tc.gpus, tc.annotations)
			first := tc.patchFirst
			b.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				if err := first; err != nil {
					first = nil
					return true, nil, err
				}
				return tc.patchFails != nil, nil, tc.patchFails
			})
			b.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return a.GetSubresource() == "binding" && tc.bindFails != nil, nil, tc.bindFails
			})
			b.client.ClearActions()

			ctx, state := t.Context(), framework.NewCycleState()
			check := func(point string, got *fwk.Status, want fwk.Code) bool {
				t.Helper()
				if got.Code() != want {
					t.Errorf("%s: %v (%s), want %v", point, got.Code(), got.Message(), want)
				}
				return got.IsSuccess() || got.IsSkip()
			}
			done := func() {
				if diff := cmp.Diff(tc.wantWrites, writes(b.client)); diff != "" {
					t.Errorf("writes (-want,+got):\n%s", diff)
				}
				var phases []string
				for _, c := range b.state(t).Allocations.Dump() {
					phases = append(phases, c.Phase)
				}
				if phase := strings.Join(phases, ","); phase != tc.wantPhase {
					t.Errorf("claim is %q at the end, want %q", phase, tc.wantPhase)
				}
			}
			defer done()
			_, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod)
			if !check("PreFilter", status, tc.wantPreFilter) {
				return
			}
			info := b.info(t)
			if !check("Filter", b.fw.RunFilterPlugins(ctx, state, pod, info), tc.wantFilter) {
				return
			}
			if status := b.fw.RunPreScorePlugins(ctx, state, pod, []fwk.NodeInfo{info}); !status.IsSuccess() {
				t.Fatalf("PreScore: %v", status)
			}
			if _, status := b.fw.RunScorePlugins(ctx, state, pod, []fwk.NodeInfo{info}); !status.IsSuccess() {
				t.Fatalf("Score: %v", status)
			}
			assumed := pod.DeepCopy()
			assumed.Spec.NodeName = info.Node().Name
			before := assumed.DeepCopy()
			if tc.unreserve {
				defer func() {
					b.fw.RunReservePluginsUnreserve(ctx, state, assumed, info.Node().Name)
					b.fw.RunReservePluginsUnreserve(ctx, state, assumed, info.Node().Name) // idempotent
				}()
			}
			if !check("Reserve", b.fw.RunReservePluginsReserve(ctx, state, assumed, info.Node().Name), tc.wantReserve) {
				return
			}
			check("PreBindPreFlight", b.fw.RunPreBindPreFlights(ctx, state, assumed, info.Node().Name), tc.wantPreFlight)
			if !check("PreBind", b.fw.RunPreBindPlugins(ctx, state, assumed, info.Node().Name), tc.wantPreBind) {
				return
			}
			check("Bind", b.fw.RunBindPlugins(ctx, state, assumed, info.Node().Name), tc.wantBind)
			if tc.bindFails == nil && !tc.unreserve {
				// The reservation outlives it: only a snapshot with the pod replaces it.
				b.fw.RunPostBindPlugins(ctx, state, assumed, info.Node().Name)
			}
			if diff := cmp.Diff(before, assumed); diff != "" {
				t.Errorf("the assumed pod, which the scheduler's cache shares, was changed (-before,+after):\n%s", diff)
			}
		})
	}
}

// TestPatchUID: the patch names the pod by UID.
func TestPatchUID(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
	pod := b.pod("p", 2, nil)
	b.place(t, pod)
	i := slices.IndexFunc(b.client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "patch" })
	if i < 0 {
		t.Fatal("no PATCH was sent")
	}
	patch, ok := b.client.Actions()[i].(clienttesting.PatchAction)
	if !ok {
		t.Fatalf("got %T", b.client.Actions()[i])
	}
	var body struct {
		Metadata struct {
			UID         string            `json:"uid"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
		t.Fatal(err)
	}
	if body.Metadata.UID != string(pod.UID) {
		t.Errorf("UID %q in the PATCH, want %q", body.Metadata.UID, pod.UID)
	}
	for _, key := range []string{allocation.Key, allocation.GPUIDsKey, allocation.GPUIDsAlias, allocation.NUMANodeAlias, allocation.CPUSetKey} {
		if body.Metadata.Annotations[key] == "" {
			t.Errorf("the PATCH has no %s: %v", key, body.Metadata.Annotations)
		}
	}
	a, err := allocation.Parse(body.Metadata.Annotations[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	switch d, err := allocation.ParseDecision(body.Metadata.Annotations[allocation.DecisionKey]); {
	case err != nil:
		t.Errorf("why it was chosen cannot be read: %v", err)
	case !d.Of(a) || len(d.Candidates) != 1 || d.Candidates[0].Node != "n" || d.BestRing == 0:
		t.Errorf("the record %+v is not of the choice of 2 GPUs on the only node, n", d)
	}
	for key := range body.Metadata.Annotations {
		if !allocation.IsOutputKey(key) {
			t.Errorf("%s is written but not protected as an output key", key)
		}
	}
}

// TestSharedState: two profiles share one state.
func TestSharedState(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
	other := b.another(t, "PreBind", topology.Name)
	b.place(t, b.pod("first", 4, nil))
	second := b.pod("second", 8, nil)
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status, _ := other.RunPreFilterPlugins(ctx, state, second); !status.IsSuccess() {
		t.Fatal(status)
	}
	status := other.RunFilterPlugins(ctx, state, second, b.info(t))
	if status.Code() != fwk.Unschedulable || status.Message() != placement.FewGPUs.String() {
		t.Errorf("the other profile says %v %q, want Unschedulable %q", status.Code(), status.Message(), placement.FewGPUs)
	}
}

// TestFilterScoreAllocations: Filter and Score do not allocate memory.
func TestFilterScoreAllocations(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
	b.place(t, b.pod("first", 2, nil))
	pod := b.pod("p", 2, nil)
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	info := b.info(t)
	if status := b.fw.RunPreScorePlugins(ctx, state, pod, []fwk.NodeInfo{info}); !status.IsSuccess() {
		t.Fatal(status)
	}
	for name, p := range b.instances {
		filter, ok := p.(fwk.FilterPlugin)
		if !ok {
			t.Fatalf("%s is no Filter plugin", name)
		}
		score, ok := p.(fwk.ScorePlugin)
		if !ok {
			t.Fatalf("%s is no Score plugin", name)
		}
		var status *fwk.Status
		if n := testing.AllocsPerRun(200, func() { status = filter.Filter(ctx, state, pod, info) }); n != 0 || !status.IsSuccess() {
			t.Errorf("%s: Filter allocates %v times (%v)", name, n, status)
		}
		if n := testing.AllocsPerRun(200, func() { _, status = score.Score(ctx, state, pod, info) }); n != 0 || !status.IsSuccess() {
			t.Errorf("%s: Score allocates %v times (%v)", name, n, status)
		}
	}
}

func TestHints(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name)
	waiting := b.pod("waiting", 8, nil)
	holder := b.pod("holder", 1, nil)
	holder.Spec.NodeName = "n"
	unbound := b.pod("unbound", 1, nil)
	idle := holder.DeepCopy()
	idle.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	corrected := waiting.DeepCopy()
	corrected.Annotations = map[string]string{podrequest.MinLinkKey: "SYS"}
	repaired := holder.DeepCopy()
	repaired.Annotations = map[string]string{allocation.Key: "x"}
	small, large := b.node.DeepCopy(), b.node.DeepCopy()
	delete(small.Status.Allocatable, gpuResource)
	tests := map[string]struct {
		resource fwk.EventResource
		old, new any
		want     fwk.QueueingHint
	}{
		"a pod that held GPUs is deleted":     {fwk.Pod, holder, nil, fwk.Queue},
		"a pod that held nothing is deleted":  {fwk.Pod, idle, nil, fwk.QueueSkip},
		"a waiting pod is deleted":            {fwk.Pod, unbound, nil, fwk.QueueSkip},
		"the pod itself was corrected":        {fwk.Pod, waiting, corrected, fwk.Queue},
		"another pod's allocation was mended": {fwk.Pod, holder, repaired, fwk.Queue},
		"another pod changed otherwise":       {fwk.Pod, holder, holder, fwk.QueueSkip},
		"a node came":                         {fwk.Node, nil, large, fwk.Queue},
		"a node got GPUs":                     {fwk.Node, small, large, fwk.Queue},
		"a node lost GPUs":                    {fwk.Node, large, small, fwk.QueueSkip},
	}
	events, err := b.instances[topology.Name].(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, e := range events {
				if e.Event.Resource != tc.resource {
					continue
				}
				got, err := e.QueueingHintFn(b.logger, waiting, tc.old, tc.new)
				if err != nil || got != tc.want {
					t.Errorf("hint %v (%v), want %v", got, err, tc.want)
				}
			}
		})
	}
}
