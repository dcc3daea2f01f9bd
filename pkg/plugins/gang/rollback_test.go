// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	fakegroups "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/fake"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// TestFailedEviction: one eviction that fails does not end a roll-back. Of a, b and c, the eviction of b
// fails.
func TestFailedEviction(t *testing.T) {
	t.Parallel()
	pods := v1.Resource("pods")
	tests := map[string]struct {
		err error

		wantAsked   []string
		wantEvicted int
		wantErr     bool
	}{
		"its disruption budget refuses":          {apierrors.NewTooManyRequests("no", 0), []string{"a", "b", "c"}, 2, true},
		"it is gone":                             {apierrors.NewNotFound(pods, "b"), []string{"a", "b", "c"}, 2, false},
		"another one has its name":               {apierrors.NewConflict(pods, "b", errors.New("UID")), []string{"a", "b", "c"}, 2, false},
		"the API server fails":                   {errors.New("it is down"), []string{"a", "b", "c"}, 2, true},
		"another process leads":                  {leader.ErrNotLeader, []string{"a", "b"}, 1, true},
		"the API server does not answer":         {context.DeadlineExceeded, []string{"a", "b"}, 1, true},
		"the process ends while it is asked for": {context.Canceled, []string{"a", "b"}, 1, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var victims []*v1.Pod
			for _, name := range []string{"a", "b", "c"} {
				victims = append(victims, schedtest.Pod(name).Obj())
			}
			var asked []string
			failed := fmt.Errorf("evicting pod b: %w", tc.err)
			evicted, err := evictEach(victims, func(pod *v1.Pod) error {
				asked = append(asked, pod.Name)
				if pod.Name == "b" {
					return failed
				}
				return nil
			})
			if diff := cmp.Diff(tc.wantAsked, asked); diff != "" {
				t.Errorf("asked for (-want,+got)\n%s", diff)
			}
			if evicted != tc.wantEvicted {
				t.Errorf("%d were evicted, want %d", evicted, tc.wantEvicted)
			}
			if (err != nil) != tc.wantErr || err != nil && !errors.Is(err, failed) {
				t.Errorf("the error is %v, want that of b: %t", err, tc.wantErr)
			}
		})
	}
}

// TestSameAttempt: a PodGroup is marked whole also if other fields of it have changed since it was read.
func TestSameAttempt(t *testing.T) {
	t.Parallel()
	group := func(state string, minimum int32, version string) *schedulingv1alpha1.PodGroup {
		g := &schedulingv1alpha1.PodGroup{Spec: schedulingv1alpha1.PodGroupSpec{MinMember: minimum}}
		g.ResourceVersion, g.Annotations = version, map[string]string{gangrequest.StateKey: state}
		return g
	}
	const first, second = `{"attempt":1,"whole":false}`, `{"attempt":2,"whole":false}`
	tests := map[string]struct {
		now  *schedulingv1alpha1.PodGroup
		want bool
	}{
		"nothing was changed":             {group(first, 2, "1"), true},
		"its status was changed":          {group(first, 2, "2"), true},
		"another attempt was begun":       {group(second, 2, "2"), false},
		"somebody wrote that it is whole": {group(`{"attempt":1,"whole":true}`, 2, "2"), false},
		"it asks for more members":        {group(first, 4, "2"), false},
		"its state cannot be read":        {group("{", 2, "2"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameAttempt(group(first, 2, "1"), tc.now); got != tc.want {
				t.Errorf("the same attempt: %t, want %t", got, tc.want)
			}
		})
	}
}

// handle is a framework with a client only.
type handle struct {
	fwk.Handle
	client kubernetes.Interface
}

func (h handle) ClientSet() kubernetes.Interface { return h.client }

// TestWholeBesideWrites: a gang is marked whole although others write its PodGroup between the two reads.
// The mark was left out then, and the gang stayed one that was never whole.
func TestWholeBesideWrites(t *testing.T) {
	t.Parallel()
	const name = "g"
	stored := &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "group", Annotations: map[string]string{gangrequest.StateKey: gangrequest.State{Attempt: 1}.Encode()},
		},
		Spec: schedulingv1alpha1.PodGroupSpec{MinMember: 1},
	}
	groups, reads := fakegroups.NewClientset(), 0
	groups.PrependReactor("get", groupResource, func(clienttesting.Action) (bool, runtime.Object, error) {
		reads++
		now := stored.DeepCopy()
		now.ResourceVersion, now.Status.Running = strconv.Itoa(reads), int32(reads) // a controller counts
		return true, now, nil
	})
	written := ""
	groups.PrependReactor("patch", groupResource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			written = string(patch.GetPatch())
		}
		return true, stored, nil
	})
	member := schedtest.Pod("p").Namespace("ns").Label(schedulingv1alpha1.PodGroupLabel, name).Node("n").Obj()
	state := nodestate.New(nodestate.Config{RequestTimeout: time.Minute}, clock.RealClock{})
	d := newDoer(t.Context(), handle{client: fake.NewClientset(member)}, clock.RealClock{}, state)
	d.groups = func() (versioned.Interface, error) { return groups, nil }
	d.gangs = gangstate.New(clock.RealClock{}, gangstate.Config{}, scheduler{d, cluster{state.Leader, state.Lists, state.Fabric, state.PreSelector}})
	key := gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: "ns", Name: name}
	if evicted, err := d.settle(&gangstate.Settlement{Key: key, Group: stored}); err != nil || evicted > 0 {
		t.Fatalf("%d are evicted: %v", evicted, err)
	}
	want := `{"metadata":{"uid":"group","resourceVersion":"2","annotations":{"nvtopo.dev/gang-state":"{\"attempt\":1,\"whole\":true}"}}}`
	if diff := cmp.Diff(want, written); diff != "" || reads != 2 {
		t.Errorf("after %d reads, want 2, is written (-want,+got)\n%s", reads, diff)
	}
}
