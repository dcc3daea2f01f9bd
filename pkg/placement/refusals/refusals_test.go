// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// many are refusals of a node, each of another pod, at the given ages.
func many(namespace, node string, ages ...time.Duration) (out []Refusal) {
	for i, age := range ages {
		out = append(out, Refusal{
			Pod: types.UID(fmt.Sprint(namespace, "/", node, "/", i)), Namespace: namespace, Node: node, Reason: "UnexpectedAdmissionError", At: now.Add(-age),
		})
	}
	return out
}

// TestMarks: which nodes are marked for refusals, and until when.
func TestMarks(t *testing.T) {
	tests := map[string]struct {
		refused []Refusal
		want    map[string]time.Duration // from now
	}{
		"nothing":                      {},
		"two refusals are no pattern":  {refused: many("a", "n", 0, time.Minute)},
		"three are":                    {refused: many("a", "n", 0, time.Second, time.Minute), want: map[string]time.Duration{"n": 4 * time.Minute}},
		"a refusal counts for so long": {refused: many("a", "n", 0, time.Second, Window)},
		"more refusals make it last as long as the last three count": {
			refused: many("a", "n", 4*time.Minute, 3*time.Minute, 2*time.Minute, time.Minute), want: map[string]time.Duration{"n": 2 * time.Minute},
		},
		"refusals of several namespaces add up": {
			refused: slices.Concat(many("a", "n", 0), many("b", "n", 0), many("c", "n", 0)), want: map[string]time.Duration{"n": Window},
		},
		"those of several nodes do not": {refused: slices.Concat(many("a", "n", 0, 0), many("a", "m", 0, 0))},
		"one namespace marks four nodes at most, those with the most refusals": {
			refused: slices.Concat(
				many("a", "n1", 0, 0, 0), many("a", "n2", 0, 0, 0, 0), many("a", "n3", 0, 0, 0, 0), many("a", "n4", 0, 0, 0, 0), many("a", "n5", 0, 0, 0, 0)),
			want: map[string]time.Duration{"n2": Window, "n3": Window, "n4": Window, "n5": Window},
		},
		"another namespace marks others": {
			refused: slices.Concat(
				many("a", "n1", 0, 0, 0), many("a", "n2", 0, 0, 0, 0), many("a", "n3", 0, 0, 0, 0), many("a", "n4", 0, 0, 0, 0), many("a", "n5", 0, 0, 0, 0),
				many("b", "n1", 0, 0, 0)),
			want: map[string]time.Duration{"n1": Window, "n2": Window, "n3": Window, "n4": Window, "n5": Window},
		},
		"a time to come counts as now": {refused: many("a", "n", -time.Hour, -time.Hour, -time.Hour), want: map[string]time.Duration{"n": Window}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got map[string]time.Duration
			for node, m := range Of(tc.refused, now) {
				if got == nil {
					got = map[string]time.Duration{}
				}
				got[node] = m.Until.Sub(now)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("marks (-want,+got):\n%s", diff)
			}
		})
	}
}

func failed(uid, namespace, node, reason string) *v1.Pod {
	p := testobj.Pod(uid).Namespace(namespace).UID(uid).Node(node).Phase(v1.PodFailed).Obj()
	p.Status.Reason = reason
	return p
}

// TestReasons: which failures of a pod are refusals for its node's devices.
func TestReasons(t *testing.T) {
	tests := map[string]struct {
		phase        v1.PodPhase
		node, reason string
		want         bool
	}{
		"the device plugin fails":                      {v1.PodFailed, "n", "UnexpectedAdmissionError", true},
		"kubelet has fewer GPUs":                       {v1.PodFailed, "n", "OutOfnvidia.com/gpu", true},
		"a node writes a megabyte":                     {v1.PodFailed, "n", "OutOf/" + strings.Repeat("x", 1<<20), false},
		"a node writes control characters":             {v1.PodFailed, "n", "OutOfa/\x1b[2J", false},
		"kubelet has less CPU":                         {v1.PodFailed, "n", "OutOfcpu", false},
		"kubelet has no place for pods":                {v1.PodFailed, "n", "OutOfpods", false},
		"what the pod asks cannot be aligned":          {v1.PodFailed, "n", "TopologyAffinityError", false},
		"it was evicted":                               {v1.PodFailed, "n", "Evicted", false},
		"its container failed":                         {v1.PodFailed, "n", "", false},
		"its container was killed for memory":          {v1.PodFailed, "n", "OOMKilled", false},
		"it runs, whatever is said":                    {v1.PodRunning, "n", "UnexpectedAdmissionError", false},
		"it has no node, so no kubelet has refused it": {v1.PodFailed, "", "UnexpectedAdmissionError", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := failed("p", "team", tc.node, tc.reason)
			p.Status.Phase = tc.phase
			if got := ReasonOf(p); (got != "") != tc.want {
				t.Errorf("reason %q, want one: %t", got, tc.want)
			}
		})
	}
}

// TestSeen: only pods whose GPUs were chosen for this pod on this node are used, at the time at which the
// API server received the status.
func TestSeen(t *testing.T) {
	chosen := func(p *v1.Pod, uid types.UID, node string) *v1.Pod {
		a := &allocation.Allocation{
			Version: allocation.Version, Node: node, PodUID: uid, Containers: []allocation.Container{{Name: "main", Resource: "nvidia.com/gpu", GPUs: []string{"GPU-1"}}},
		}
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{allocation.Key: text}
		p.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		return p
	}
	told := chosen(failed("told", "team", "n", "OutOfnvidia.com/gpu"), "told", "n")
	told.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: new(metav1.NewTime(now))},
		{Manager: "kubelet", Subresource: "status", Time: new(metav1.NewTime(now.Add(-time.Minute)))},
	}
	pods := []v1.Pod{
		*told,
		*chosen(failed("plain", "team", "n", "UnexpectedAdmissionError"), "plain", "n"),
		*failed("bound by its owner", "team", "n", "UnexpectedAdmissionError"),
		*chosen(failed("with the annotation of another", "team", "n", "UnexpectedAdmissionError"), "other", "n"),
		*chosen(failed("chosen for another node", "team", "n", "UnexpectedAdmissionError"), "chosen for another node", "m"),
		*chosen(failed("failed by itself", "team", "n", ""), "failed by itself", "n"),
	}
	got := map[types.UID]time.Time{}
	for _, r := range Seen(pods) {
		got[r.Pod] = r.At
	}
	want := map[types.UID]time.Time{"told": now.Add(-time.Minute), "plain": now.Add(-time.Hour)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-want,+got):\n%s", diff)
	}
}

// TestTable: which pods a scheduler process records as refused, and how long a mark lasts.
func TestTable(t *testing.T) {
	type step struct {
		after time.Duration
		sent  string // a pod is sent to node n
		fails *v1.Pod
	}
	sentAndRefused := func(n int, namespace string) (out []step) {
		for i := range n {
			uid := namespace + strconv.Itoa(i)
			out = append(out, step{sent: uid}, step{fails: failed(uid, namespace, "n", "UnexpectedAdmissionError")})
		}
		return out
	}
	tests := map[string]struct {
		steps     []step
		want      []string
		wantTells int
	}{
		"three pods that were sent are refused":           {steps: sentAndRefused(3, "a"), want: []string{"n"}, wantTells: 1},
		"two are":                                         {steps: sentAndRefused(2, "a")},
		"more are, and it is told once":                   {steps: sentAndRefused(40, "a"), want: []string{"n"}, wantTells: 1},
		"the mark ends":                                   {steps: append(sentAndRefused(3, "a"), step{after: Window}), wantTells: 1},
		"it lasts until then":                             {steps: append(sentAndRefused(3, "a"), step{after: Window - 1}), want: []string{"n"}, wantTells: 1},
		"another three mark it again":                     {steps: slices.Concat(sentAndRefused(3, "a"), []step{{after: Window}}, sentAndRefused(3, "b")), want: []string{"n"}, wantTells: 2},
		"a pod that is seen again counts once":            {steps: append(sentAndRefused(2, "a"), step{fails: failed("a0", "a", "n", "UnexpectedAdmissionError")})},
		"a pod that was bound by somebody else":           {steps: append(sentAndRefused(2, "a"), step{fails: failed("own", "a", "n", "UnexpectedAdmissionError")})},
		"a pod that was sent to another node":             {steps: append(sentAndRefused(2, "a"), step{sent: "x"}, step{fails: failed("x", "a", "m", "UnexpectedAdmissionError")})},
		"a pod that failed by itself":                     {steps: append(sentAndRefused(2, "a"), step{sent: "x"}, step{fails: failed("x", "a", "n", "Error")})},
		"a pod that is refused within the time":           {steps: append([]step{{sent: "x"}, {after: Window}}, append(sentAndRefused(2, "a"), step{fails: failed("x", "a", "n", "UnexpectedAdmissionError")})...), want: []string{"n"}, wantTells: 1},
		"a pod that was sent too long ago for a refusal":  {steps: append([]step{{sent: "x"}, {after: 2 * Window}}, append(sentAndRefused(2, "a"), step{fails: failed("x", "a", "n", "UnexpectedAdmissionError")})...)},
		"a flood of one namespace leaves those of others": {steps: slices.Concat(sentAndRefused(1, "b"), sentAndRefused(100, "a")), want: []string{"n"}, wantTells: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(now)
			tells := 0
			table := NewTable(clk, func(Mark) { tells++ })
			for _, s := range tc.steps {
				clk.SetTime(clk.Now().Add(s.after))
				if s.sent != "" {
					table.Sent(types.UID(s.sent), "n")
				}
				if s.fails != nil {
					table.See(s.fails)
				}
			}
			if got := table.Any(); got != (len(tc.want) > 0) {
				t.Errorf("any node is marked: %t, want %q", got, tc.want)
			}
			var got []string
			for _, m := range table.Marks() {
				got = append(got, m.Node)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || table.Refuses("n") != (len(tc.want) > 0) || table.Refuses("other") || tells != tc.wantTells {
				t.Errorf("n is marked: %t, told %d times, want %d; marks (-want,+got):\n%s", table.Refuses("n"), tells, tc.wantTells, diff)
			}
			if len(table.refused) > maxOfNode+1 {
				t.Errorf("%d refusals are kept of two namespaces and a node", len(table.refused))
			}
		})
	}
}

// TestReadingAllocates: reading the marks of a node allocates nothing.
func TestReadingAllocates(t *testing.T) {
	table := NewTable(clocktesting.NewFakePassiveClock(now), nil)
	for i := range 3 {
		uid := strconv.Itoa(i)
		table.Sent(types.UID(uid), "n")
		table.See(failed(uid, "a", "n", "OutOfnvidia.com/gpu"))
	}
	if !table.Any() || !table.Refuses("n") {
		t.Fatal("n is not marked")
	}
	if n := testing.AllocsPerRun(100, func() { table.Refuses("n"); table.Refuses("m") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestStrip: a stripped failed pod keeps all fields that are read.
func TestStrip(t *testing.T) {
	p := failed("p", "team", "n", "OutOfnvidia.com/gpu")
	p.Labels = map[string]string{"large": "object"}
	got, err := Strip(p)
	if err != nil {
		t.Fatal(err)
	}
	stripped := got.(*v1.Pod)
	if ReasonOf(stripped) != ReasonOf(p) || stripped.UID != p.UID || stripped.Namespace != p.Namespace || len(stripped.Labels) != 0 {
		t.Errorf("stripped to %+v", stripped)
	}
}
