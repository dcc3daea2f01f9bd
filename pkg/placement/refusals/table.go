// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// maxOfNode is the number of refusals of one namespace that are kept for one node, the last ones.
	maxOfNode = 16
	// maxRefusals is the number kept in all.
	maxRefusals = 4096
)

// Table holds the marks of a scheduler process. A pod is included only if this process sent it to the
// node. It may be used at any time and under any lock; reading the marks takes no lock and allocates
// nothing.
type Table struct {
	clock  clock.PassiveClock
	marked func(Mark)
	marks  atomic.Pointer[Marks]

	mu sync.Mutex // guards all below
	// sent are the pods that were sent to nodes since turned, and before those of the previous Window.
	sent, before map[types.UID]string
	turned       time.Time
	refused      []Refusal // of the last Window, in the order in which they came
}

// NewTable returns a Table without marks. It calls marked for each node that becomes marked, holding no
// lock.
func NewTable(clk clock.PassiveClock, marked func(Mark)) *Table {
	return &Table{clock: clk, marked: marked, sent: map[types.UID]string{}, turned: clk.Now()}
}

// Any reports whether a node is marked.
func (t *Table) Any() bool {
	marks := t.load()
	if len(marks) == 0 {
		return false
	}
	now := t.clock.Now()
	for node := range marks {
		if marks.Has(node, now) {
			return true
		}
	}
	return false
}

// Refuses reports whether a node is marked.
func (t *Table) Refuses(node string) bool {
	marks := t.load()
	return len(marks) > 0 && marks.Has(node, t.clock.Now())
}

// Marks returns the nodes that are marked now.
func (t *Table) Marks() (out []Mark) {
	now := t.clock.Now()
	for _, m := range t.load() {
		if now.Before(m.Until) {
			out = append(out, m)
		}
	}
	return out
}

func (t *Table) load() Marks {
	if m := t.marks.Load(); m != nil {
		return *m
	}
	return nil
}

// Sent records that a pod with GPUs is about to be bound to a node.
func (t *Table) Sent(pod types.UID, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	t.sent[pod] = node
}

// turn forgets pods that were sent more than a Window before the last one began. The caller holds t.mu.
func (t *Table) turn() {
	age := t.clock.Since(t.turned)
	if age < Window {
		return
	}
	t.before = t.sent
	if age >= 2*Window {
		t.before = nil
	}
	t.sent, t.turned = map[types.UID]string{}, t.clock.Now()
}

// See records the refusal if a failed pod is one.
func (t *Table) See(p *v1.Pod) {
	reason := ReasonOf(p)
	if reason == "" {
		return
	}
	if m, is := t.count(p, reason); is && t.marked != nil {
		t.marked(m)
	}
}

// count records a refusal and reports whether the node is marked by it and was not before.
func (t *Table) count(p *v1.Pod, reason string) (m Mark, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	if t.sent[p.UID] != p.Spec.NodeName && t.before[p.UID] != p.Spec.NodeName {
		return Mark{}, false
	}
	delete(t.sent, p.UID)
	delete(t.before, p.UID)
	now := t.clock.Now()
	r := Refusal{Pod: p.UID, Namespace: p.Namespace, Node: p.Spec.NodeName, Reason: reason, At: now}
	t.refused = append(slices.DeleteFunc(t.refused, func(o Refusal) bool { return !now.Before(o.At.Add(Window)) }), r)
	t.bound(&r)
	was := t.load().Has(r.Node, now)
	marks := Of(t.refused, now)
	t.marks.Store(&marks)
	m, is = marks[r.Node]
	return m, is && !was
}

// bound drops the oldest refusals beyond the bounds, where one was added. The caller holds t.mu.
func (t *Table) bound(added *Refusal) {
	same := 0
	for i := len(t.refused) - 1; i >= 0; i-- {
		if t.refused[i].Namespace != added.Namespace || t.refused[i].Node != added.Node {
			continue
		}
		if same++; same > maxOfNode {
			t.refused = slices.Delete(t.refused, i, i+1)
		}
	}
	if n := len(t.refused) - maxRefusals; n > 0 {
		t.refused = slices.Delete(t.refused, 0, n)
	}
}

// Strip reduces a pod to the fields that See reads.
func Strip(obj any) (any, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		Spec:       v1.PodSpec{NodeName: p.Spec.NodeName},
		Status:     v1.PodStatus{Phase: p.Status.Phase, Reason: ReasonOf(p)},
	}, nil
}
