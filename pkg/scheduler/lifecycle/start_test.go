// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// late is an API server whose list of Leases the test delays.
type late struct {
	kubernetes.Interface
	lists chan struct{}
}

// IsWatchListSemanticsUnSupported returns true like the fake client, for informers.
func (late) IsWatchListSemanticsUnSupported() bool { return true }

func (l late) CoordinationV1() coordinationv1client.CoordinationV1Interface {
	return lateCoordination{l.Interface.CoordinationV1(), l.lists}
}

type lateCoordination struct {
	coordinationv1client.CoordinationV1Interface
	lists chan struct{}
}

func (l lateCoordination) Leases(namespace string) coordinationv1client.LeaseInterface {
	return lateLeases{l.CoordinationV1Interface.Leases(namespace), l.lists}
}

type lateLeases struct {
	coordinationv1client.LeaseInterface
	lists chan struct{}
}

func (l lateLeases) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.lists:
		return l.LeaseInterface.List(ctx, o)
	}
}

// newLate is a scheduler that starts, and waits for its list of Leases.
func newLate(t *testing.T) (w *wholeScheduler, comes func()) {
	t.Helper()
	lists := make(chan struct{})
	w = newWholeSchedulerThrough(t, clock.RealClock{}, func(c kubernetes.Interface) kubernetes.Interface { return late{c, lists} })
	return w, func() { close(lists) }
}

// TestPodsBeforeLists: pods are not tried before the lists are in. The scheduler starts with pods
// waiting. Before, each was tried, and refused in writing, once before it could be placed.
func TestPodsBeforeLists(t *testing.T) {
	const pods = 8
	w, comes := newLate(t)
	for i := range pods {
		w.add(t, fmt.Sprint("p", i), 1, 0)
	}
	time.Sleep(time.Second)
	comes()
	w.await(t, pods)
	told := 0
	for _, a := range w.client.Actions() {
		if patch, ok := a.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), lifecycle.ErrReasonNotSynced) {
			told++
		}
	}
	// A pod whose cycle had begun before the lists came is refused: its snapshot is as old.
	if told > 1 {
		t.Errorf("%d pods were told to wait, want one at most", told)
	}
}

// TestListWaitNotice: a wait for the lists is reported. The list never comes.
func TestListWaitNotice(t *testing.T) {
	w, _ := newLate(t)
	for i := range 3 {
		w.add(t, fmt.Sprint("p", i), 1, 0)
	}
	testkit.Soon(t, "every pod says what it waits for", func() bool {
		list, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		said := 0
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, lifecycle.ErrReasonNotSynced) {
					said++
				}
			}
		}
		return said == 3
	})
}
