// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// whileRead is a lister that has something done after the reservations of a node were read, and
// before its usage is computed.
type whileRead struct {
	fwk.NodeInfoLister
	do func()
}

func (l whileRead) Get(name string) (fwk.NodeInfo, error) {
	l.do()
	return l.NodeInfoLister.Get(name)
}

func TestAChoiceMadeWhileANodeIsJudgedIsNotForgotten(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	info, l := r.view(t)
	reserve := func(name string, gpus int) {
		pod := gpuPod(name, gpus)
		if _, reason := r.Reserve(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
	}
	reserve("before", 1)
	d := demandOf(t, gpuPod("asks", 7))
	r.Judge(d, info, whileRead{l, sync.OnceFunc(func() { reserve("meanwhile", 1) })})
	if got := r.Judge(d, info, l).Reason; got != placement.FewGPUs {
		t.Errorf("7 GPUs on a node that has 6 left: %v, want %v", got, placement.FewGPUs)
	}
	checkMemos(t, r.State, l)
}

// TestChoicesMadeSideBySideShareNoGPU chooses, gives back and ends pods in several goroutines,
// while others judge the node.
func TestChoicesMadeSideBySideShareNoGPU(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	info, l := r.view(t)
	slow := whileRead{l, runtime.Gosched}
	var mu sync.Mutex
	owner := map[string]types.UID{} // GPU -> the pod that was told to have it
	claim := func(uid types.UID, gpus []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range gpus {
			if other, taken := owner[id]; taken {
				t.Errorf("GPU %s is chosen for pods %s and %s", id, other, uid)
			}
			owner[id] = uid
		}
	}
	leave := func(gpus []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range gpus {
			delete(owner, id)
		}
	}
	var choosing, judging sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		choosing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 300 {
				pod := gpuPod(fmt.Sprint("p-", g, "-", i), 1+rng.IntN(4))
				a, reason := r.Reserve(demandOf(t, pod), pod, info, slow)
				if reason != placement.Fits {
					continue
				}
				gpus := a.GPUs(testResource)
				claim(pod.UID, gpus)
				runtime.Gosched()
				leave(gpus)
				if rng.IntN(2) == 0 {
					r.Unreserve(pod.UID, "n")
				} else {
					r.podDeleted(pod.UID)
					r.Sweep(l)
				}
			}
		})
	}
	for range 2 {
		judging.Go(func() {
			d := demandOf(t, gpuPod("asks", 4))
			for {
				select {
				case <-stop:
					return
				default:
					r.Judge(d, info, slow)
				}
			}
		})
	}
	choosing.Wait()
	close(stop)
	judging.Wait()
	r.Sweep(l)
	if got := r.Judge(demandOf(t, gpuPod("all", 8)), info, l).Reason; got != placement.Fits {
		t.Errorf("all GPUs of a node where nothing is left: %v, want that it fits", got)
	}
	checkMemos(t, r.State, l)
}
