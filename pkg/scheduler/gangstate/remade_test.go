// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// meanwhile runs a function while the first effect of a step is carried out.
type meanwhile struct {
	idle
	happens func()
}

func (m *meanwhile) Activate([]*v1.Pod) {
	if happens := m.happens; happens != nil {
		m.happens = nil
		happens()
	}
}

// TestRemadeGang: a gang whose pods are deleted and made again under its name, while the effects on the
// old ones are carried out, is known.
func TestRemadeGang(t *testing.T) {
	t.Parallel()
	doer := &meanwhile{}
	g := New(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Config{}, doer)
	g.Serve(testProfile)
	old, remade := member("a", 1, "a-0").UID("a-0.1").Obj(), member("a", 1, "a-0").UID("a-0.2").Obj()
	doer.happens = func() {
		g.DeletePod(old)
		g.SetPod(remade)
	}
	g.SetPod(old)
	if why := g.Gate(remade); why != "" {
		t.Errorf("the new gang is kept out of the queue: %s", why)
	}
	g.DeletePod(remade)
	if len(g.queue.gangs) > 0 {
		t.Errorf("%d gangs are known, though all pods are gone", len(g.queue.gangs))
	}
}
