// SPDX-License-Identifier: Apache-2.0

package allocation

import "testing"

// TestMemo: a memo decodes an annotation once.
func TestMemo(t *testing.T) {
	text := func(pod string) string {
		a := &Allocation{Version: Version, Node: "n", PodUID: "p", Containers: []Container{{Name: pod, Resource: "nvidia.com/gpu", GPUs: []string{"GPU-0"}}}}
		s, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m := NewMemo()
	for i, step := range []struct {
		text      string
		forget    bool // before
		wantFresh bool
		wantErr   bool
		wantNone  bool
	}{
		{text: text("a"), wantFresh: true},
		{text: text("a")},
		{text: text("b"), wantFresh: true},
		{text: "{", wantFresh: true, wantErr: true, wantNone: true},
		{text: "{", wantNone: true}, // the error was returned before
		{text: text("b"), wantFresh: true},
		{text: text("b"), forget: true, wantFresh: true},
	} {
		if step.forget {
			m.Forget("p")
			if m.Len() != 0 {
				t.Errorf("step %d: %d pods are remembered after the only one was forgotten", i, m.Len())
			}
		}
		a, fresh, err := m.Parse("p", step.text)
		if fresh != step.wantFresh || (err != nil) != step.wantErr || (a == nil) != step.wantNone {
			t.Errorf("step %d: %v, decoded now %t, error %v; want none %t, decoded %t, error %t", i, a, fresh, err, step.wantNone, step.wantFresh, step.wantErr)
		}
		if m.Len() != 1 {
			t.Errorf("step %d: %d pods are remembered, want 1", i, m.Len())
		}
	}
}
