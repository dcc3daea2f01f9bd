// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
)

// fakeCordons is a scheduler that has cordons to acknowledge, and an API server.
type fakeCordons struct {
	*CordonAcknowledger

	words   []cordons.Word
	settled bool
	elects  bool
	known   bool
	leads   error
	refused error
	wrote   []string
	clock   *clocktesting.FakeClock
}

func (f *fakeCordons) Cordons() []cordons.Word { return f.words }
func (f *fakeCordons) CordonsSettled() bool    { return f.settled }
func (f *fakeCordons) KnowsItself() bool       { return f.known }

func (f *fakeCordons) Leads(context.Context) error {
	if f.elects {
		f.settled = false // its own Lease has come, which shows that it was elected a moment ago
	}
	return f.leads
}

func newFakeCordons(words ...cordons.Word) *fakeCordons {
	f := &fakeCordons{words: words, settled: true, known: true, clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "nodegputopologies", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p, ok := a.(clienttesting.PatchAction)
		if !ok || p.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("unexpected request %v", a)
		}
		var body struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
			return true, nil, err
		}
		if f.refused == nil {
			for _, c := range body.Status.Conditions {
				f.wrote = append(f.wrote, fmt.Sprintf("%s %s %s %s: %s", p.GetName(), c.Type, c.Status, c.Reason, c.Message))
			}
		}
		return true, &unstructured.Unstructured{}, f.refused
	})
	f.CordonAcknowledger = NewCordonAcknowledger(f, client, f.clock)
	f.elected = func() bool { return false }
	return f
}

func TestAcknowledgement(t *testing.T) {
	const token = "2026-11-29T12:00:00.5Z"
	word := func(pods ...string) []cordons.Word {
		return []cordons.Word{{Node: "n", Token: token, InFlight: pods}}
	}
	done := "n CordonAcknowledged True NothingInFlight: " + token
	for name, tc := range map[string]struct {
		words []cordons.Word
		with  func(*fakeCordons)
		want  []string
	}{
		"nothing is cordoned":  {},
		"nothing is in flight": {words: word(), want: []string{done}},
		"a pod is in flight": {
			words: word("team/a"), want: []string{"n CordonAcknowledged False PodsInFlight: " + token + ": pod team/a is being bound to the node, or may still be"},
		},
		"three pods are in flight": {
			words: word("team/a", "team/b", "team/c"), want: []string{"n CordonAcknowledged False PodsInFlight: " + token + ": pod team/a and 2 more are being bound to the node, or may still be"},
		},
		"the scheduler was elected lately": {
			words: word(), with: func(f *fakeCordons) { f.settled = false },
			want: []string{"n CordonAcknowledged False TakingOver: " + token + ": the scheduler was started or elected lately, and writes of another may still be carried out"},
		},
		"the scheduler hears of its own election when it asks who leads": {
			words: word(), with: func(f *fakeCordons) { f.elects = true },
			want: []string{"n CordonAcknowledged False TakingOver: " + token + ": the scheduler was started or elected lately, and writes of another may still be carried out"},
		},
		"a standby says nothing": {words: word(), with: func(f *fakeCordons) { f.known = false }},
		"a leader that has scheduled nothing yet": {
			words: word(), with: func(f *fakeCordons) { f.known, f.elected = false, func() bool { return true } }, want: []string{done},
		},
		"a former leader says nothing": {words: word(), with: func(f *fakeCordons) { f.leads = errors.New("not the leader") }},
		"a node that publishes nothing": {words: word(), with: func(f *fakeCordons) {
			f.refused = apierrors.NewNotFound(v1alpha1.GroupVersionResource.GroupResource(), "n")
		}},
		"the API server refuses the write": {words: word(), with: func(f *fakeCordons) {
			f.refused = apierrors.NewForbidden(v1alpha1.GroupVersionResource.GroupResource(), "n", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCordons(tc.words...)
			if tc.with != nil {
				tc.with(f)
			}
			f.look(t.Context())
			if diff := cmp.Diff(tc.want, f.wrote); diff != "" {
				t.Errorf("written (-want,+got):\n%s", diff)
			}
			if f.refused != nil { // it is tried again
				f.refused = nil
				f.look(t.Context())
				if diff := cmp.Diff([]string{done}, f.wrote); diff != "" {
					t.Errorf("written in the next look (-want,+got):\n%s", diff)
				}
			}
		})
	}
}

// TestAcknowledgedAgain: an acknowledgement is written again after cordonAgain, and at once if it
// changes.
func TestAcknowledgedAgain(t *testing.T) {
	f := newFakeCordons(cordons.Word{Node: "n", Token: "2026-11-29T12:00:00Z", InFlight: []string{"team/a"}})
	looks := func(want int, what string) {
		t.Helper()
		f.look(t.Context())
		if len(f.wrote) != want {
			t.Errorf("%s: %d writes, want %d: %q", what, len(f.wrote), want, f.wrote)
		}
	}
	looks(1, "first")
	f.clock.Step(time.Second)
	looks(1, "a second later")
	f.words[0].InFlight = nil
	looks(2, "nothing is in flight any more")
	f.clock.Step(cordonAgain)
	looks(3, "after cordonAgain")
	f.words[0].Token = "2026-11-29T13:00:00Z"
	looks(4, "another cordon")
}
