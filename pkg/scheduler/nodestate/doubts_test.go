// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// stalling is an API server that never answers reads of some pods.
type stalling struct {
	kubernetes.Interface
	stalls func(name string) bool
	reads  *atomic.Int32
}

func (s stalling) CoreV1() corev1client.CoreV1Interface { return stallingCore{s.Interface.CoreV1(), s} }

type stallingCore struct {
	corev1client.CoreV1Interface
	of stalling
}

func (s stallingCore) Pods(namespace string) corev1client.PodInterface {
	return stallingPods{s.CoreV1Interface.Pods(namespace), s.of}
}

type stallingPods struct {
	corev1client.PodInterface
	of stalling
}

func (s stallingPods) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1.Pod, error) {
	s.of.reads.Add(1)
	if s.of.stalls(name) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.PodInterface.Get(ctx, name, o)
}

// TestUndecidableDoubt: a read without an answer delays no other. It held up all others for
// requestTimeout: eight unknown outcomes behind it kept their GPUs for minutes.
func TestUndecidableDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(testConfig(), clock.RealClock{}) // synctest's
		s.listers.pods = fixedStore{}
		node := addNode(t, s, "n", "dgx1-v100")
		r := &testEnv{State: s, node: node}
		var pods []runtime.Object
		for i := range 8 {
			pod := schedtest.Pod(fmt.Sprintf("p-%d", i)).GPUs(1).Obj()
			r.attempt(t, pod)
			pods = append(pods, pod)
		}
		var reads atomic.Int32
		client := stalling{fake.NewClientset(pods...), func(name string) bool { return name < "p-4" }, &reads}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.doubtReader.run(ctx, client)
			close(ended)
		}()
		time.Sleep(requestTimeout + 2*doubtInterval)
		synctest.Wait()
		if left := s.Allocations.Dump(); len(left) != 4 {
			t.Errorf("%d doubts are left, want the 4 that are not answered", len(left))
		}
		if n := reads.Load(); n != 8 {
			t.Errorf("%d reads, want one for each doubt", n)
		}
		cancel()
		<-ended // with its reads
	})
}
