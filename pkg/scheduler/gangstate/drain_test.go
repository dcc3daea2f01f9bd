// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
)

// drainEnv has gangs without room, for which the test chooses the nodes.
type drainEnv struct {
	*testEnv
}

const (
	drainAfter = 30 * time.Minute
	drainFor   = 4 * time.Hour
	gpu        = v1.ResourceName("nvidia.com/gpu")
)

func newDrainEnv(t *testing.T) *drainEnv {
	t.Helper()
	return newDrainEnvWith(t, Config{DrainAfter: drainAfter, DrainFor: drainFor, DrainShare: 50, DrainTotalShare: 75})
}

func newDrainEnvWith(t *testing.T, c Config) *drainEnv {
	t.Helper()
	return &drainEnv{newTestEnvWith(t, c, 0, 1, false)}
}

// gang makes a gang of two whose last member was made at a time.
func (e *drainEnv) gang(name string, priority int32, made time.Duration) []*v1.Pod {
	return e.gangOf("ns", name, priority, made)
}

func (e *drainEnv) gangOf(namespace, name string, priority int32, made time.Duration) []*v1.Pod {
	var pods []*v1.Pod
	for i, suffix := range []string{"-0", "-1"} {
		pod := member(name, 2, name+suffix).Namespace(namespace).Priority(priority).Created(time.Unix(0, 0).Add(made - time.Duration(1-i)*time.Minute)).Obj()
		e.set(pod)
		pods = append(pods, pod)
	}
	return pods
}

// place returns the need of a member with eight GPUs on a node where others are in the way.
func place(node string) *Place {
	return &Place{
		Node: node, Device: gpu, Devices: map[v1.ResourceName]bool{gpu: true},
		Amounts: map[v1.ResourceName]int64{gpu: 8, v1.ResourceCPU: 4000, v1.ResourceMemory: 0}, Lacks: []v1.ResourceName{gpu}, Way: Others,
	}
}

// needOn returns the need of a gang on nodes; there are ten such nodes.
func needOn(nodes ...string) *Need {
	n := &Need{Where: "rack-1", Planned: nodes, Have: map[v1.ResourceName]int{gpu: 10}}
	for _, node := range nodes {
		n.Places = append(n.Places, place(node))
	}
	return n
}

// refuse is a cycle of a gang that finds no room; nodes are those that it would get.
func (e *drainEnv) refuse(pod *v1.Pod, nodes ...string) (from time.Time, text string) {
	e.t.Helper()
	return e.refuseWith(pod, needOn(nodes...))
}

func (e *drainEnv) refuseWith(pod *v1.Pod, n *Need) (from time.Time, text string) {
	e.t.Helper()
	turn, _ := e.gangs.Begin(pod)
	if turn.Why != "" {
		e.t.Fatalf("pod %s: %s", pod.Name, turn.Why)
	}
	s := e.gangs.Starving(&turn)
	if s.From.IsZero() || e.clock.Now().Before(s.From) {
		return s.From, s.Why
	}
	if len(s.Own) > 0 {
		n.Places = slices.DeleteFunc(n.Places, func(p *Place) bool { return !slices.Contains(s.Own, p.Node) })
		for _, node := range s.Own {
			if !slices.ContainsFunc(n.Places, func(p *Place) bool { return p.Node == node }) {
				n.Places = append(n.Places, place(node))
			}
		}
		n.Planned = s.Own
	} else {
		n.Places = slices.DeleteFunc(n.Places, func(p *Place) bool { return s.Closed(p.Node) })
		n.Planned = slices.DeleteFunc(slices.Clone(n.Planned), s.Closed)
	}
	return s.From, e.gangs.Drain(&turn, n)
}

// after lets time pass.
func (e *drainEnv) after(d time.Duration) {
	e.clock.Step(d)
	e.gangs.tick()
}

// gone deletes a gang.
func (e *drainEnv) gone(gang string) {
	e.delete(gang + "-0")
	e.delete(gang + "-1")
}

// bound binds the members of a gang to nodes.
func (e *drainEnv) bound(pods []*v1.Pod, nodes ...string) {
	for i, pod := range pods {
		pod = pod.DeepCopy()
		pod.Spec.NodeName = nodes[i]
		e.set(pod)
	}
}

func (e *drainEnv) want(what string, want map[string]string) {
	e.t.Helper()
	got := map[string]string{}
	for node, places := range e.kept {
		for _, k := range places {
			got[node] = k.Gang
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("%s: nodes with kept places (-want,+got)\n%s", what, diff)
	}
}

// TestNodeClosing: places are kept for the oldest gang of a priority.
func TestNodeClosing(t *testing.T) {
	t.Parallel()
	r := newDrainEnv(t)
	a, b, c := r.gang("a", 0, 10*time.Minute), r.gang("b", 0, 5*time.Minute), r.gang("c", 7, 0)
	r.clock.Step(10 * time.Minute)
	from, text := r.refuse(a[0], "n1")
	if want := time.Unix(0, 0).Add(40 * time.Minute); !from.Equal(want) || text != "" {
		t.Errorf("nodes are closed from %v (%q), want %v: that long after the last member was made", from, text, want)
	}
	r.clock.Step(30 * time.Minute)
	if _, text = r.refuse(a[0], "n1", "n2"); !strings.HasPrefix(text, "drains rack-1 since 1970-01-01T00:40:00Z: places on 2 nodes (nvidia.com/gpu) are kept from younger pods until 1970-01-01T04:40:00Z") {
		t.Errorf("the gang says %q", text)
	}
	r.want("a", map[string]string{"n1": "gang ns/a", "n2": "gang ns/a"})
	r.refuse(b[0], "n2", "n3")
	r.want("b is older", map[string]string{"n2": "gang ns/b", "n3": "gang ns/b"})
	if from, text = r.refuse(a[0], "n1"); text != "" || !from.IsZero() {
		t.Errorf("nodes are chosen for the younger gang, too: from %v, %q", from, text)
	}
	r.refuse(c[0], "n3", "n4")
	r.want("c has a higher priority and needs a node of b's", map[string]string{"n3": "gang ns/c", "n4": "gang ns/c"})
	r.refuse(b[0], "n3", "n5")
	r.want("b does not get it", map[string]string{"n3": "gang ns/c", "n4": "gang ns/c", "n5": "gang ns/b"})
	r.delete("c-0")
	r.delete("c-1")
	r.want("c is gone", map[string]string{"n5": "gang ns/b"})
	r.delete("b-0")
	r.delete("b-1")
	r.want("b is gone", map[string]string{})
	r.refuse(a[0], "n1")
	r.want("a is the oldest", map[string]string{"n1": "gang ns/a"})
}

// TestNodeOpening: closed nodes are opened once the gang is placed.
func TestNodeOpening(t *testing.T) {
	t.Parallel()
	r := newDrainEnv(t)
	pods := r.gang("a", 0, 0)
	extra := member("a", 2, "a-2").Obj()
	r.clock.Step(drainAfter)
	if _, text := r.refuse(pods[0], "n1", "n2"); text == "" {
		t.Fatal("nothing is closed")
	}
	first := r.kept["n1"][0]
	for range 3 {
		r.clock.Step(time.Minute)
		r.refuse(pods[0], "n3")
	}
	if keys := slices.Sorted(maps.Keys(r.kept)); !slices.Equal(keys, []string{"n1", "n2"}) || r.kept["n1"][0] != first {
		t.Errorf("places are kept on %v, %+v: the nodes are chosen once", keys, r.kept["n1"][0])
	}
	r.room = 2
	r.settle(20)
	r.nothingHeld()
	if bound := r.counts("a", 2); bound != 2 {
		t.Fatalf("%d members are bound", bound)
	}
	r.want("all are bound", map[string]string{})
	r.set(extra)
	r.clock.Step(2 * drainAfter)
	turn, _ := r.gangs.Begin(extra)
	if s := r.gangs.Starving(&turn); !s.From.IsZero() {
		t.Errorf("places are kept from %v for a member above the minimum", s.From)
	}
}

// TestRetryOnOpening: gangs are tried again when nodes are opened.
func TestRetryOnOpening(t *testing.T) {
	t.Parallel()
	r := newDrainEnv(t)
	pods := r.gang("a", 0, 0)
	r.clock.Step(drainAfter)
	r.refuse(pods[0], "n1")
	r.want("a", map[string]string{"n1": "gang ns/a"})
	select {
	case <-r.gangs.queue.wake: // because they were closed
	default:
	}
	r.delete("a-0")
	r.delete("a-1")
	r.want("a is gone", map[string]string{})
	select {
	case <-r.gangs.queue.wake:
	default:
		t.Error("no round of gangs that wait is due")
	}
}

// TestDrainReplacement: a waiting member is deleted and made again, as controllers do. The places kept
// for its gang stay, on the same nodes and until the same time, for a minute.
func TestDrainReplacement(t *testing.T) {
	t.Parallel()
	kept, nothing := map[string]string{"n1": "gang ns/a", "n2": "gang ns/a"}, map[string]string{}
	tests := map[string]struct {
		lacks     time.Duration // until the member is made again
		deleted   []string      // other members
		size      int           // of the gang after that
		want      map[string]string
		wantYoung bool // the gang is as young as the new member
	}{
		"made anew in time":                   {lacks: 50 * time.Second, size: 2, want: kept},
		"made anew too late":                  {lacks: 70 * time.Second, size: 2, want: nothing, wantYoung: true},
		"all members were deleted":            {lacks: 2 * time.Second, deleted: []string{"a-0"}, size: 2, want: nothing, wantYoung: true},
		"made anew for a gang that is larger": {lacks: 2 * time.Second, size: 3, want: kept, wantYoung: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDrainEnv(t)
			pods := r.gang("a", 0, 0)
			r.clock.Step(drainAfter)
			r.refuse(pods[0], "n1", "n2")
			r.want("before", kept)
			first := r.kept["n1"][0]
			for _, name := range append(tc.deleted, "a-1") {
				r.delete(name)
			}
			r.after(tc.lacks)
			r.want("while a member lacks", tc.want)
			made := r.clock.Now()
			for i := range tc.size {
				pod := member("a", tc.size, fmt.Sprint("a-", i)).Created(made)
				if i > 0 || len(tc.deleted) > 0 {
					pod.UID(fmt.Sprint("anew-", i))
				} else {
					pod.Created(pods[0].CreationTimestamp.Time)
				}
				r.set(pod.Obj())
			}
			r.after(2 * time.Minute)
			r.want("after it", tc.want)
			wantFrom := time.Unix(0, 0).Add(drainAfter)
			if tc.wantYoung {
				wantFrom = made.Add(drainAfter)
			}
			turn, _ := r.gangs.Begin(pods[0])
			if len(tc.deleted) > 0 {
				turn, _ = r.gangs.Begin(r.pods["a-0"])
			}
			if s := r.gangs.Starving(&turn); !s.From.Equal(wantFrom) {
				t.Errorf("places are kept for it from %v on (%s), want %v", s.From, s.Why, wantFrom)
			}
			if tc.wantYoung {
				return
			}
			r.refuse(pods[0], "n3", "n4")
			r.want("after a cycle without room", tc.want)
			if got := r.kept["n1"]; len(got) != 1 || got[0] != first {
				t.Errorf("kept on n1: %+v, want what was kept before, %+v", got, *first)
			}
		})
	}
}

// TestLateGate: the time of a gang begins when its members may be scheduled.
func TestLateGate(t *testing.T) {
	t.Parallel()
	r := newDrainEnv(t)
	pods := r.gang("a", 0, 0)
	r.gate("a-1", true)
	r.clock.Step(time.Hour)
	r.gate("a-1", false)
	if from, _ := r.refuse(pods[0]); !from.Equal(r.clock.Now().Add(drainAfter)) {
		t.Errorf("nodes are closed from %v, want %v from now", from, drainAfter)
	}
}

// TestNodePatience: nodes are opened again when room does not help the gang. A gang that has room and is
// not placed loses its kept places, for as long as it waited for them.
func TestNodePatience(t *testing.T) {
	t.Parallel()
	attempt := func(r *drainEnv, pods []*v1.Pod) {
		turn, _ := r.gangs.Begin(pods[0])
		if turn.Why != "" || !r.gangs.Hold(&turn, pods[0], nil) {
			r.t.Fatalf("no attempt begins: %q", turn.Why)
		}
	}
	tests := map[string]struct {
		times int
		fail  func(*drainEnv, []*v1.Pod)
	}{
		"another plugin refuses its plans": {maxTries, func(r *drainEnv, pods []*v1.Pod) {
			r.gangs.RefusedBy(pods[0], Refusal{Node: "n1"}, 1, "refused")
		}},
		"a member is never bound": {maxFailed, func(r *drainEnv, pods []*v1.Pod) {
			attempt(r, pods)
			r.gangs.Unreserved(pods[0].UID)
		}},
		"a member never comes": {maxFailed, func(r *drainEnv, pods []*v1.Pod) {
			attempt(r, pods)
			r.clock.Step(Timeout(len(pods)) + time.Second)
			r.gangs.tick()
			r.gangs.Unreserved(pods[0].UID)
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDrainEnv(t)
			pods := r.gang("a", 0, 0)
			r.clock.Step(drainAfter)
			r.refuse(pods[0], "n1", "n2")
			for i := range tc.times {
				r.want(fmt.Sprintf("after %d failures", i), map[string]string{"n1": "gang ns/a", "n2": "gang ns/a"})
				tc.fail(r, pods)
				if i+1 < tc.times {
					r.clock.Step(2 * time.Minute)
					r.gangs.tick()
				}
			}
			r.want("it fails again and again", map[string]string{})
			until := r.clock.Now().Add(drainAfter)
			r.clock.Step(2 * time.Minute)
			r.gangs.tick()
			if from, _ := r.refuse(pods[0], "n1"); !from.Equal(until) {
				t.Errorf("nodes are closed from %v, want %v", from, until)
			}
			r.want("it has to wait", map[string]string{})
			r.clock.Step(drainAfter)
			r.refuse(pods[0], "n1")
			r.want("it waited again", map[string]string{"n1": "gang ns/a"})
		})
	}
}
