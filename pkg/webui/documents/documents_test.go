// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func sample(t *testing.T) (*viewtest.Cluster, *clusterview.View) {
	t.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return c, clusterview.Of(&c.Objects, clusterview.Options{})
}

func TestNodeSummaries(t *testing.T) {
	_, v := sample(t)
	got := map[string]string{}
	for _, n := range ClusterOf(7, v, Features{}, nil).Nodes {
		got[n.Name] = fmt.Sprintf("%s %s used %d free %d bad %d x8 %d/%d %s", strings.Join(n.Domains, "/"), n.States, n.Used, n.Free, n.Bad, n.Slots["8"], n.Capacity["8"], n.NoGraph)
	}
	want := map[string]string{
		"h100-0": "s0/r0 uffffuff used 2 free 6 bad 0 x8 0/1 ",
		"h100-1": "s0/r0 ffuuffff used 2 free 6 bad 0 x8 0/1 ",
		"h100-2": "s0/r1 uuuuuffu used 6 free 2 bad 0 x8 0/1 ",
		"v100-0": "s0/r1 uuuufffx used 4 free 3 bad 1 x8 0/0 ",
		"pcie-0": "s1/r2 ffff used 1 free 3 bad 0 x8 0/0 ",
		"old-0":  "s1/r2 uuffffff used 2 free 0 bad 0 x8 0/0 its graph is stale: the exporter's Lease has run out",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want,+got):\n%s", diff)
	}
}

func TestPodStates(t *testing.T) {
	at := metav1.NewTime(noon.Add(time.Hour))
	waiting := func(reason string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: "because"}}}
	}
	tests := map[string]struct {
		change    func(p *v1.Pod)
		wantState string
		wantSince time.Time
		wantText  string
	}{
		"no node yet": {func(p *v1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "", v1.PodPending
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "no room"}}
		}, Pending, noon, "no room"},
		"starting": {func(p *v1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = v1.PodPending, []v1.ContainerStatus{waiting("ContainerCreating")}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: at}}
		}, Running, at.Time, ""},
		"crashing":                 {func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{waiting("CrashLoopBackOff")} }, Failing, noon, "container main: CrashLoopBackOff: because"},
		"an init container cannot": {func(p *v1.Pod) { p.Status.InitContainerStatuses = []v1.ContainerStatus{waiting("ErrImagePull")} }, Failing, noon, "container main: ErrImagePull: because"},
		"failed":                   {func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" }, Failing, noon, "Evicted"},
		"succeeded": {func(p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
			p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at}}}}
		}, Ended, at.Time, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := testobj.Pod("p").Created(noon).Node("n").Phase(v1.PodRunning).Obj()
			tc.change(p)
			if state, since, text := stateOf(p); state != tc.wantState || !since.Equal(tc.wantSince) || text != tc.wantText {
				t.Errorf("%s since %v: %q; want %s since %v: %q", state, since, text, tc.wantState, tc.wantSince, tc.wantText)
			}
		})
	}
}

// TestReasonOfMembers: that members are missing is no reason any more when none is, and the count is that of now.
func TestReasonOfMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		members    int
		said, want string
	}{
		"the last member came":         {members: 3, said: "gang: 2 of 3 members"},
		"one came, and one is missing": {members: 2, said: "gang: 1 of 3 members", want: "gang: 2 of 3 members"},
		"there is no room":             {members: 3, said: "rack: 2 of 3", want: "rack: 2 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			c, v := sample(t)
			for i := range tc.members {
				p := testobj.Pod(fmt.Sprint("m", i)).Phase(v1.PodPending).GPUs(1).Annotation("nvtopo.dev/gang", "g").Annotation("nvtopo.dev/gang-size", "3").Obj()
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: tc.said}}
				c.Pods = append(c.Pods, *p)
			}
			seen := 0
			for _, w := range WorkloadsOf(v, &c.Objects) {
				if !strings.HasPrefix(w.Name, "m") {
					continue
				}
				if seen++; w.Reason != tc.want {
					t.Errorf("%s: %q, want %q", w.Name, w.Reason, tc.want)
				}
			}
			if seen != tc.members {
				t.Errorf("%d members are listed, want %d", seen, tc.members)
			}
		})
	}
}

// TestTenantAndQueue: of the namespace, and of the pod, as Kueue marked it or as it asks, or its Workload.
func TestTenantAndQueue(t *testing.T) {
	c, v := sample(t)
	c.Pods[0].Labels[kueue.LabelQueue] = "direct"
	c.Pods[1].Annotations[kueue.AnnotationWorkload] = "w"
	c.Pods[2].Labels[kueue.LabelLocalQueue] = "let-in"
	var w kueue.Workload
	w.Namespace, w.Name, w.Spec.QueueName = "default", "w", "by-workload"
	got := map[string]string{}
	for _, p := range WorkloadsOf(v, &clusterobjects.Objects{
		Pods: c.Pods, Workloads: []kueue.Workload{w},
		Namespaces: []v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"pool.nvtopo.dev/tenant": "team-a"}}}},
	}) {
		got[p.Name] = p.Tenant + " " + p.Queue
	}
	for name, want := range map[string]string{"notebook-a": "team-a direct", "notebook-b": "team-a by-workload", "infer-0": "team-a let-in"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

func TestGangs(t *testing.T) {
	c, _ := sample(t)
	lone := c.AddPod("lone", "h100-1", 1, 7)
	lone.Annotations["nvtopo.dev/gang"], lone.Annotations["nvtopo.dev/gang-size"] = "short", "3"
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	objects := &clusterobjects.Objects{Pods: c.Pods}
	got := map[string]string{}
	for _, g := range GangsOf(v, objects) {
		got[g.Name] = fmt.Sprintf("%s %d/%d/%d %s %v %v", g.State, g.Placed, g.Have, g.Minimum, g.Level, g.Domains, g.Crossings)
	}
	want := map[string]string{
		"train": "running 2/2/2 rack [r1] map[rack:0 spine:0]",
		"short": "incomplete 1/1/3 rack [r0] map[rack:0 spine:0]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gangs (-want,+got):\n%s", diff)
	}
	w := &explain.World{Objects: c.Objects}
	d := GangDetailOf(v, objects, w, "default", "train")
	if d == nil || len(d.Members) != 2 || d.Members[0].Pod != "default/train-0" || len(d.Members[0].GPUs) != 4 || d.Explanation == nil || d.Explanation.State != explain.Bound {
		t.Errorf("train is %+v", d)
	}
	if d := GangDetailOf(v, objects, w, "default", "none"); d != nil {
		t.Errorf("a gang that is not there is %+v", d)
	}
}

// TestHistoryOrder: the history is in the order of time, has the choice, the record and the events
// of this very pod.
func TestHistoryOrder(t *testing.T) {
	c, _ := sample(t)
	p := c.Pods[3].DeepCopy() // train-0, whose GPUs were chosen an hour before
	p.CreationTimestamp = metav1.NewTime(c.Now.Add(-2 * time.Hour))
	p.Annotations[allocation.GPUIndicesKey] = "0,1,2,3"
	top := c.Topology("h100-2").DeepCopy()
	top.Status.Allocations = []v1alpha1.Allocation{{PodUID: p.UID, Container: "main", GPUs: []string{top.Spec.GPUs[0].ID, "unknown"}}, {PodUID: "other", Container: "x"}}
	p.Status.StartTime = new(metav1.NewTime(c.Now.Add(-30 * time.Minute)))
	event := func(uid string, at time.Time, reason string) v1.Event {
		e := v1.Event{Reason: reason, Message: reason, LastTimestamp: metav1.NewTime(at), Count: 3}
		e.InvolvedObject.UID = p.UID
		if uid != "" {
			e.InvolvedObject.UID = "earlier"
		}
		return e
	}
	h := HistoryOf(p, []v1.Event{event("", c.Now, "Started"), event("earlier", c.Now, "Killed")}, top)
	var got []string
	for _, e := range h.Entries {
		got = append(got, e.Source+" "+e.Reason+": "+e.Text)
	}
	want := []string{
		"pod Created: the pod was made", "decision GPUsChosen: on node h100-2, GPUs 0,1,2,3",
		"record Recorded: kubelet gave container main the GPUs 0,unknown", "event Started: Started",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want,+got):\n%s", diff)
	}
	p.Annotations[allocation.Key] = "{"
	if h := HistoryOf(p, nil, nil); len(h.Problems) != 1 {
		t.Errorf("problems %q, want one of the allocation", h.Problems)
	}
}

// TestTextTruncation: long texts are cut at a character.
func TestTextTruncation(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("x", 1000), strings.Repeat("ä", 1000), "x" + strings.Repeat("€", 1000)} {
		if got := clip(text); !utf8.ValidString(got) || len(got) > maxText+len("…") || len(text) <= maxText && got != text {
			t.Errorf("%.10s… is cut to %d bytes, valid %t", text, len(got), utf8.ValidString(got))
		}
	}
}
