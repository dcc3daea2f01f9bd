// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// whileRead is a lister that calls a function after the reservations of a node were read, and before its
// usage is computed.
type whileRead struct {
	fwk.NodeInfoLister
	do func()
}

func (l whileRead) Get(name string) (fwk.NodeInfo, error) {
	l.do()
	return l.NodeInfoLister.Get(name)
}

// TestChoiceDuringJudgement: a choice made while a node is judged is not lost.
func TestChoiceDuringJudgement(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	reserve := func(name string, gpus int) {
		pod := schedtest.Pod(name).GPUs(gpus).Obj()
		if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
	}
	reserve("before", 1)
	d := demandOf(t, schedtest.Pod("asks").GPUs(7).Obj())
	r.Nodes.Judge(d, info, whileRead{l, sync.OnceFunc(func() { reserve("meanwhile", 1) })})
	if got := r.Nodes.Judge(d, info, l).Reason; got != placement.FewGPUs {
		t.Errorf("7 GPUs on a node that has 6 left: %v, want %v", got, placement.FewGPUs)
	}
	checkMemos(t, r.State, l)
}

// TestConcurrentChoices: concurrent choices share no GPU. Several goroutines choose, release and end
// pods, while others judge the node.
func TestConcurrentChoices(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	slow := whileRead{l, runtime.Gosched}
	var mu sync.Mutex
	owner := map[string]types.UID{} // GPU -> the pod that got it
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
				pod := schedtest.Pod(fmt.Sprint("p-", g, "-", i)).GPUs(1 + rng.IntN(4)).Obj()
				a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, slow)
				if reason != placement.Fits {
					continue
				}
				gpus := a.GPUs(testResource)
				claim(pod.UID, gpus)
				runtime.Gosched()
				leave(gpus)
				if rng.IntN(2) == 0 {
					r.Allocations.Forget(pod.UID, "n")
				} else {
					r.podDeleted(pod.UID)
					r.Allocations.Sweep(l)
				}
			}
		})
	}
	for range 2 {
		judging.Go(func() {
			d := demandOf(t, schedtest.Pod("asks").GPUs(4).Obj())
			for {
				select {
				case <-stop:
					return
				default:
					r.Nodes.Judge(d, info, slow)
				}
			}
		})
	}
	choosing.Wait()
	close(stop)
	judging.Wait()
	r.Allocations.Sweep(l)
	if got := r.Nodes.Judge(demandOf(t, schedtest.Pod("all").GPUs(8).Obj()), info, l).Reason; got != placement.Fits {
		t.Errorf("all GPUs of a node where nothing is left: %v, want that it fits", got)
	}
	checkMemos(t, r.State, l)
}

// ownership has the pod that got each GPU.
type ownership struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]types.UID
}

func (o *ownership) claim(uid types.UID, gpus []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range gpus {
		if other, taken := o.of[id]; taken {
			o.t.Errorf("GPU %s is chosen for pods %s and %s", id, other, uid)
		}
		o.of[id] = uid
	}
}

func (o *ownership) leave(gpus []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range gpus {
		delete(o.of, id)
	}
}

// TestConcurrentGangsAndPods plans gangs and reserves for single pods in several
// goroutines, and ends all of it in several ways.
func TestConcurrentGangsAndPods(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	nodes := []*v1.Node{r.node, addNode(t, r.State, "m", "dgx1-v100"), addNode(t, r.State, "o", "dgx1-v100")}
	l := schedcache.NewSnapshot(nil, nodes).NodeInfos()
	slow := whileRead{l, runtime.Gosched}
	owner := &ownership{t: t, of: map[string]types.UID{}}
	var all sync.WaitGroup
	var planned, refused, single atomic.Int64
	for g := range 3 {
		all.Go(func() {
			x := &gangRun{r: r, t: t, rng: rand.New(rand.NewPCG(uint64(g), 5)), list: slow, nodes: nodes, owner: owner, slotter: placement.NewSlotCounter()}
			for i := range 200 {
				if x.run(fmt.Sprint("gang-", g, "-", i)) {
					planned.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	for g := range 2 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 6))
			for i := range 400 {
				pod := schedtest.Pod(fmt.Sprint("p-", g, "-", i)).GPUs(1 + rng.IntN(4)).Obj()
				info, err := l.Get(nodes[rng.IntN(3)].Name)
				if err != nil {
					t.Error(err)
					return
				}
				a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, slow)
				if reason != placement.Fits {
					continue
				}
				single.Add(1)
				owner.claim(pod.UID, a.GPUs(testResource))
				runtime.Gosched()
				owner.leave(a.GPUs(testResource))
				r.Allocations.Forget(pod.UID, a.Node)
			}
		})
	}
	all.Wait()
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("left when all had ended: %+v", left)
	}
	if planned.Load() < 50 || refused.Load() == 0 || single.Load() < 100 {
		t.Errorf("%d gangs were planned, %d refused, %d single pods reserved: too few of some", planned.Load(), refused.Load(), single.Load())
	}
	checkMemos(t, r.State, l)
}

// gangRun plans gangs and ends them.
type gangRun struct {
	r       *testEnv
	t       *testing.T
	rng     *rand.Rand
	list    fwk.NodeInfoLister
	nodes   []*v1.Node
	owner   *ownership
	slotter *placement.SlotCounter
}

// run reports whether the gang got its places.
func (x *gangRun) run(name string) bool {
	members := x.plan(name)
	if members == nil {
		return false
	}
	uids := make([]types.UID, len(members))
	for i := range members {
		uids[i] = members[i].Pod.UID
	}
	failed, _ := x.r.GangReserver.ReserveGang(members, x.list, nil, nil)
	for _, uid := range uids {
		if entries := x.r.reservationsOf(uid); len(entries) > 0 == (failed >= 0) {
			x.t.Errorf("a gang of which member %d failed: pod %s has %d entries", failed, uid, len(entries))
		}
	}
	if failed >= 0 {
		return false
	}
	for i := range members {
		x.owner.claim(uids[i], x.gpus(&members[i]))
	}
	x.end(members, uids)
	return true
}

// plan puts each member on a node where it may find room; nil if it finds none.
func (x *gangRun) plan(name string) (members []GangMember) {
	gpus := 1 + x.rng.IntN(4)
	for i := range 2 + x.rng.IntN(3) {
		pod := schedtest.Pod(fmt.Sprint(name, "-", i)).GPUs(gpus).Obj()
		d, node := demandOf(x.t, pod), x.nodes[x.rng.IntN(len(x.nodes))].Name
		info, err := x.list.Get(node)
		if err != nil {
			x.t.Error(err)
			return nil
		}
		supply := x.r.Nodes.Supply(d, info, x.list, x.slotter)
		n := supply.Members()
		if n == 0 {
			return nil
		}
		sets := supply.Slots.Sets(n)
		members = append(members, GangMember{Pod: pod, Demand: d, Node: node, GPUs: sets[i%n]})
	}
	return members
}

func (x *gangRun) gpus(m *GangMember) (ids []string) {
	for p := range m.GPUs.All() {
		ids = append(ids, x.r.Nodes.Node(m.Node).Accels[0].Graph.GPUs[p].UUID)
	}
	return ids
}

// end lets some cycles begin, and ends the gang in one of the ways in which gangs end.
func (x *gangRun) end(members []GangMember, uids []types.UID) {
	begun := x.rng.IntN(len(members) + 1)
	for i := range begun {
		if a, ended := x.r.GangReserver.ReservePlanned(uids[i], members[i].Node); ended || a.PodUID != uids[i] {
			x.t.Errorf("pod %s does not find its part in the plan", uids[i])
		}
	}
	kept := x.rng.IntN(2) == 0
	if kept {
		x.r.GangReserver.KeepPlanned(uids...)
	}
	for i := range members {
		x.owner.leave(x.gpus(&members[i]))
	}
	switch x.rng.IntN(3) {
	case 0: // the attempt ends, and those that wait at Permit are told later
		x.r.GangReserver.EndPlanned(uids...)
		runtime.Gosched()
		for i := range begun {
			x.r.Allocations.Forget(uids[i], members[i].Node)
		}
	case 1: // the first failure ends it
		for i := range begun {
			x.r.Allocations.Forget(uids[i], members[i].Node)
		}
		x.r.GangReserver.EndPlanned(uids...)
	case 2: // all are deleted
		for _, uid := range uids {
			x.r.podDeleted(uid)
		}
		x.r.Allocations.Sweep(x.list)
	}
}
