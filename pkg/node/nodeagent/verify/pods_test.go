// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const testNode = "n1"

// running is a pod that runs on the node, named after its UID.
func running(uid types.UID) *testobj.PodWrapper {
	return testobj.Pod(string(uid)).Namespace("ns").Node(testNode).Phase(v1.PodRunning)
}

// annotation is a valid one; see chosen for the choices.
func annotation(t *testing.T, node string, uid types.UID, choices ...string) string {
	t.Helper()
	a := chosen(uid, choices...).want
	a.Node = node
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// kubeletSays is an Active with prepared answers.
type kubeletSays struct {
	known  map[string]bool      // pod name -> answer
	served map[types.UID]string // names of pods that an agent served
	err    error
	asked  int
}

func (k *kubeletSays) Active(_ context.Context, _ types.UID, _, name string) (bool, error) {
	k.asked++
	return k.known[name], k.err
}

func (k *kubeletSays) Name(_ context.Context, _ string, uid types.UID) (namespace, name string, ok bool) {
	return "ns", k.served[uid], k.served[uid] != ""
}

func noReport(t *testing.T) func(*v1.Pod, error) {
	t.Helper()
	return func(p *v1.Pod, err error) { t.Errorf("pod %s was reported: %v", p.Name, err) }
}

func counted(t *testing.T, b *podBook, records []kubelet.Record, active Active, now time.Time) ([]types.UID, time.Duration) {
	t.Helper()
	m, again := b.counting(t.Context(), records, active, now)
	return slices.Sorted(maps.Keys(m)), again
}

// TestEndedPodCounting: pods that ended count until kubelet lets go.
func TestEndedPodCounting(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b := newPodBook(testNode)
	k := &kubeletSays{known: map[string]bool{"a": true, "b": true}}
	a, c := running("a").Obj(), running("b").Obj()
	records := []kubelet.Record{rec("a", "m=1"), rec("b", "m=2"), rec("b", "n=3")}
	both := []types.UID{"a", "b"}

	b.update([]*v1.Pod{a, c}, noReport(t))
	got, again := counted(t, b, records, k, t0)
	if diff := cmp.Diff(both, got); diff != "" || again != 0 || k.asked != 0 {
		t.Fatalf("living pods (-want,+got):\n%s again %v, asked %d", diff, again, k.asked)
	}

	ended := a.DeepCopy()
	ended.Status.Phase = v1.PodFailed
	b.update([]*v1.Pod{ended}, noReport(t)) // and b is gone
	got, again = counted(t, b, records, k, t0)
	if diff := cmp.Diff(both, got); diff != "" || again != firstAsk || k.asked != 2 {
		t.Fatalf("ended pods that kubelet knows (-want,+got):\n%s again %v, asked %d", diff, again, k.asked)
	}

	k.known["a"] = false
	if got, _ = counted(t, b, records, k, t0.Add(firstAsk/2)); k.asked != 2 || !slices.Equal(got, both) {
		t.Errorf("asked again at once (%d times), counted %v", k.asked, got)
	}
	got, again = counted(t, b, records, k, t0.Add(firstAsk))
	if diff := cmp.Diff([]types.UID{"b"}, got); diff != "" || again != 2*firstAsk {
		t.Errorf("after kubelet let a go (-want,+got):\n%s again %v", diff, again)
	}

	k.err, k.known["b"] = errors.New("no answer"), false
	if got, _ = counted(t, b, records, k, t0.Add(time.Second)); !slices.Equal(got, []types.UID{"b"}) {
		t.Errorf("with a kubelet that does not answer %v count, want b", got)
	}
	k.err = nil
	asked := k.asked
	if got, again = counted(t, b, records, k, t0.Add(time.Hour)); len(got) != 0 || again != 0 || k.asked != asked+1 {
		t.Errorf("after kubelet let both go %v count, again %v, asked %d times more", got, again, k.asked-asked)
	}
	// The file keeps the records until the next allocation.
	if got, _ = counted(t, b, records, k, t0.Add(2*time.Hour)); len(got) != 0 || k.asked != asked+1 {
		t.Errorf("later %v count, asked %d times more", got, k.asked-asked)
	}
}

// TestOldKubelet: an old kubelet is not waited for long.
func TestOldKubelet(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b := newPodBook(testNode)
	k := &kubeletSays{err: fmt.Errorf("get: %w", kubelet.ErrUnsupported)}
	ended := running("a").Obj()
	ended.Status.Phase = v1.PodSucceeded
	b.update([]*v1.Pod{ended}, noReport(t))
	records := []kubelet.Record{rec("a", "m=1")}
	if got, again := counted(t, b, records, k, t0); len(got) != 1 || again != unaskedGrace {
		t.Errorf("at once %v count, again %v", got, again)
	}
	if got, again := counted(t, b, records, k, t0.Add(unaskedGrace)); len(got) != 0 || again != 0 {
		t.Errorf("then %v count, again %v", got, again)
	}
}

// TestEndedPodSuccessor: an ended pod is not taken for its successor.
func TestEndedPodSuccessor(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b := newPodBook(testNode)
	k := &kubeletSays{known: map[string]bool{"a": true}}
	b.update([]*v1.Pod{running("a").Obj()}, noReport(t))
	successor := running("a2").Obj()
	successor.Name = "a"
	b.update([]*v1.Pod{successor}, noReport(t))
	records := []kubelet.Record{rec("a", "m=1"), rec("a2", "m=2")}
	if got, again := counted(t, b, records, k, t0); len(got) != 2 || again != orphanGrace || k.asked != 0 {
		t.Errorf("%v count, again %v, asked %d times; want both, no question", got, again, k.asked)
	}
	if got, _ := counted(t, b, records, k, t0.Add(orphanGrace)); !slices.Equal(got, []types.UID{"a2"}) {
		t.Errorf("%v count, want the successor alone", got)
	}
}

func TestUnknownPodRecords(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b := newPodBook(testNode)
	k := &kubeletSays{}
	records := []kubelet.Record{rec("x", "m=1")}
	if got, again := counted(t, b, records, k, t0); len(got) != 0 || again != unknownGrace {
		t.Errorf("at once %v count, again %v: the informer may be behind", got, again)
	}
	if got, again := counted(t, b, records, k, t0.Add(unknownGrace)); len(got) != 1 || again != orphanGrace-unknownGrace {
		t.Errorf("then %v count, again %v", got, again)
	}
	if got, _ := counted(t, b, records, k, t0.Add(orphanGrace)); len(got) != 0 || k.asked != 0 {
		t.Errorf("in the end %v count, asked %d", got, k.asked)
	}
	b.update([]*v1.Pod{running("x").Obj()}, noReport(t))
	if got, _ := counted(t, b, records, k, t0.Add(orphanGrace)); len(got) != 1 {
		t.Error("a pod that turns up does not count")
	}
	if _, again := counted(t, b, nil, k, t0); again != 0 || len(b.pages) != 1 {
		t.Errorf("without records: again %v, %d pages", again, len(b.pages))
	}
	b.update(nil, noReport(t))
	if counted(t, b, nil, k, t0); len(b.pages) != 0 {
		t.Errorf("%d pages are left of nothing", len(b.pages))
	}
}

// TestEarlierPublication: the entries that an earlier process published are known.
func TestEarlierPublication(t *testing.T) {
	b := newPodBook(testNode)
	b.update([]*v1.Pod{running("a").Annotation(allocation.Key, annotation(t, testNode, "a", "m=1")).Obj()}, noReport(t))
	b.recall([]v1alpha1.Allocation{
		{PodUID: "a", Namespace: "ns", Pod: "a", Container: "m", Resource: gpu, GPUs: []string{"9"}, State: v1alpha1.StateReassigned},
		{PodUID: "g", Namespace: "ns", Pod: "gone", Container: "m", Resource: gpu, GPUs: []string{"2"}, State: v1alpha1.StateConfirmed},
		{PodUID: "l", Namespace: "ns", Pod: "later", Container: "m", Resource: gpu, GPUs: []string{"3"}, State: "a later release's"},
	})
	k := &kubeletSays{known: map[string]bool{"gone": true, "later": true}}
	records := []kubelet.Record{rec("a", "m=1"), rec("g", "m=2"), rec("l", "m=3")}
	pods, _ := b.counting(t.Context(), records, k, time.Unix(1000, 0))
	want := []string{"a m 1 confirmed", "g m 2 confirmed", "l m 3 foreign"}
	if diff := cmp.Diff(want, lines(compare(pods, records))); diff != "" || k.asked != 2 {
		t.Errorf("entries (-want,+got):\n%s asked %d", diff, k.asked)
	}
}

// TestStaticPod: a static pod is found by its manifest.
func TestStaticPod(t *testing.T) {
	mirror := running("api-uid").Annotation(v1.MirrorPodAnnotationKey, "hash").Obj()
	b := newPodBook(testNode)
	b.update([]*v1.Pod{mirror}, noReport(t))
	records := []kubelet.Record{rec("hash", "m=1")}
	pods, _ := b.counting(t.Context(), records, nil, time.Unix(1000, 0))
	got := compare(pods, records)
	if diff := cmp.Diff([]string{"api-uid m 1 foreign"}, lines(got)); diff != "" {
		t.Errorf("entries (-want,+got):\n%s", diff)
	}
	if got[0].recorded != "hash" {
		t.Errorf("recorded under %q", got[0].recorded)
	}
}

// TestMirrorPodForgery: no pod passes for another pod's mirror. An annotation that a tenant writes
// must not hide the record of the pod it names, whichever of them the informer lists last.
func TestMirrorPodForgery(t *testing.T) {
	liar := running("liar").Annotation(v1.MirrorPodAnnotationKey, "victim").Obj()
	victim := running("victim").Obj()
	for name, pods := range map[string][]*v1.Pod{"the liar is last": {victim, liar}, "the liar is first": {liar, victim}} {
		t.Run(name, func(t *testing.T) {
			b := newPodBook(testNode)
			b.update(pods, noReport(t))
			records := []kubelet.Record{rec("victim", "m=1")}
			counted, _ := b.counting(t.Context(), records, nil, time.Unix(1000, 0))
			if diff := cmp.Diff([]string{"victim m 1 foreign"}, lines(compare(counted, records))); diff != "" {
				t.Errorf("entries (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestUnusableAnnotations: unusable annotations are reported once.
func TestUnusableAnnotations(t *testing.T) {
	valid := annotation(t, testNode, "a", "m=1")
	for name, tc := range map[string]struct {
		text  string
		want  string
		stale bool
		moved bool // the choice is kept, to be corrected
	}{
		"not JSON":        {"{", "nvtopo.dev/allocation: unexpected EOF", false, false},
		"another pod":     {annotation(t, testNode, "b", "m=1"), `stale nvtopo.dev/allocation: podUID is "b", this pod is "a"`, true, false},
		"another node":    {annotation(t, "n2", "a", "m=1"), `stale nvtopo.dev/allocation: node is "n2", the pod runs on "n1"`, true, true},
		"a later version": {`{"version":2,"node":1}`, "nvtopo.dev/allocation: version 2, at most 1 is read: written by a later release", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPodBook(testNode)
			var said []error
			report := func(_ *v1.Pod, err error) { said = append(said, err) }
			for _, text := range []string{tc.text, tc.text, valid, tc.text} {
				b.update([]*v1.Pod{running("a").Annotation(allocation.Key, text).Obj()}, report)
				if has := b.pages["a"].view.want != nil; has != (text == valid || tc.moved) {
					t.Fatalf("choice known: %t, of %s", has, text)
				}
			}
			if len(said) != 1 || said[0].Error() != tc.want || errors.Is(said[0], errStale) != tc.stale || errors.Is(said[0], errMoved) != tc.moved {
				t.Errorf("said %q, want once %q", said, tc.want)
			}
		})
	}
}

// TestEndedPodsAtRestart: pods that ended before a restart are known. Kubelet's record keeps pods
// that have ended until the next admission, and an agent that starts finds them nowhere else.
func TestEndedPodsAtRestart(t *testing.T) {
	k := &kubeletSays{known: map[string]bool{"ending": true}, served: map[types.UID]string{"a": "ended", "b": "ending"}}
	records := []kubelet.Record{rec("a", "m=1"), rec("b", "m=2"), rec("c", "m=3")}
	for restart := range 3 {
		now := time.Unix(1000+int64(restart)*10, 0)
		b := newPodBook(testNode)
		// Any of them may be a living pod that the informer does not have yet.
		got, again := counted(t, b, records, k, now)
		if len(got) != 0 || again <= 0 || again > unknownGrace {
			t.Errorf("start %d: %v count, looks again after %v; want none before %v", restart, got, again, unknownGrace)
		}
		// b is the one that kubelet still knows. Whoever was served by no agent cannot be
		// asked for, and may be alive.
		got, _ = counted(t, b, records, k, now.Add(unknownGrace))
		if want := []types.UID{"b", "c"}; !slices.Equal(got, want) {
			t.Errorf("start %d, %v later: %v count, want %v", restart, unknownGrace, got, want)
		}
	}
}

// TestJustServedPod: a pod served just now counts as known. The agent has just served it, and the
// informer comes behind. It must not be published as one that nobody chose for.
func TestJustServedPod(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b := newPodBook(testNode)
	k := &kubeletSays{known: map[string]bool{"new": true}, served: map[types.UID]string{"a": "new"}}
	records := []kubelet.Record{rec("a", "m=1")}
	pods, again := b.counting(t.Context(), records, k, t0)
	if got := lines(compare(pods, records)); len(got) != 0 || again != unknownGrace {
		t.Errorf("before the informer has it: published %q, looks again after %v", got, again)
	}
	b.update([]*v1.Pod{running("a").Annotation(allocation.Key, annotation(t, testNode, "a", "m=1")).Obj()}, noReport(t))
	pods, _ = b.counting(t.Context(), records, k, t0.Add(time.Second))
	if diff := cmp.Diff([]string{"a m 1 confirmed"}, lines(compare(pods, records))); diff != "" {
		t.Errorf("published (-want,+got):\n%s", diff)
	}
}
