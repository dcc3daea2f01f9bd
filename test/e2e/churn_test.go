// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// churn creates pods, checks each as soon as it runs and once more a little later, and deletes it, so
// that the next ones get its GPUs.
type churn struct {
	env    *testEnv
	lister cache.Indexer

	// hold is the longest time for which a pod keeps its GPUs after the first check.
	hold time.Duration
	// rng chooses the time, guarded by mu.
	rng *rand.Rand
	// judge returns the faults of a running pod's containers.
	judge func(pod *v1.Pod, containers []gpunode.Observation) []string
	// patient makes it retry if the node does not answer: programs are being killed.
	patient bool

	mu       sync.Mutex
	first    map[string]string // pod -> the allocation it was bound with
	begun    map[string]look   // pod -> its state at the first check
	owner    map[string]string // GPU -> the pod that has it now
	looked   int               // pods that ran and were checked
	failed   map[string]int    // reason and message -> pods that kubelet refused or could not start
	problems []string
	last     time.Time         // time at which the last pod was seen running
	unseen   map[string]string // pod -> last error of its check
}

// look is the state of a pod at one check.
type look struct {
	containers []gpunode.Observation
	until      time.Time // time of the next check
}

// churned begins the names of the pods that a churn may delete.
const churned = "pod-"

// workload makes n pods of random kinds, often with runs of equal counts.
func workload(n int, rng *rand.Rand) []*v1.Pod {
	var out []*v1.Pod
	for len(out) < n {
		size := []int{1, 2, 4}[rng.IntN(3)]
		kind := rng.IntN(10)
		alike := 1 + rng.IntN(6) // number of pods with equal counts in a row
		for range min(alike, n-len(out)) {
			out = append(out, podOf(fmt.Sprintf("%s%03d", churned, len(out)), size, kind))
		}
	}
	return out
}

// podOf makes a pod of one of ten kinds, half of them plain, whose size is the greatest number in any of
// its containers.
func podOf(name string, size, kind int) *v1.Pod {
	switch kind {
	case 0: // two GPU containers, equal counts
		return gpunode.Pod(name, min(size, 2), gpunode.WithContainer("second", min(size, 2)))
	case 1: // two GPU containers, unequal counts
		return gpunode.Pod(name, size, gpunode.WithContainer("second", 1))
	case 2: // the app container takes over the init container's GPUs
		return gpunode.Pod(name, size, gpunode.WithInit("prepare", size))
	case 3: // and more; the second init container reuses the first's
		return gpunode.Pod(name, size, gpunode.WithInit("prepare", 1), gpunode.WithInit("check", max(1, size/2)))
	case 4:
		return gpunode.Pod(name, min(size, 2), gpunode.WithSidecar("proxy", 1))
	}
	return gpunode.Pod(name, size)
}

// run creates the pods in bursts and returns when every one was checked or refused. It returns the time
// from the first creation until the last pod ran.
func (c *churn) run(t *testing.T, pods []*v1.Pod, burst int) time.Duration {
	t.Helper()
	c.mu.Lock()
	c.first, c.begun, c.owner, c.failed = map[string]string{}, map[string]look{}, map[string]string{}, map[string]int{}
	c.unseen = map[string]string{}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactory(c.env.Client, 0)
	informer := factory.Core().V1().Pods().Informer()
	c.lister = informer.GetIndexer()
	work := make(chan string, 10*len(pods))
	enqueue := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok && strings.HasPrefix(pod.Name, churned) {
			c.note(pod)
			work <- pod.Name
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	begun := time.Now()
	var done sync.WaitGroup
	finished := make(chan string, len(pods))
	c.serve(ctx, &done, work, finished)
	created := 0
	for over := 0; over < len(pods); {
		for ; created < len(pods) && created-over < burst; created++ {
			pod := pods[created].DeepCopy()
			if _, err := c.env.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Fatalf("create pod %s: %v", pod.Name, err)
			}
		}
		select {
		case <-finished:
			over++
		case <-time.After(patience):
			t.Fatalf("no pod has come to its end for %v: %s", patience, c.state())
		case <-ctx.Done():
			t.Fatal(c.state())
		}
	}
	cancel()
	done.Wait()
	factory.Shutdown()
	return c.last.Sub(begun)
}

// served returns the number of pods that the node has started so far, and of those started or refused.
func (c *churn) served() (ran, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked, c.looked + total(c.failed)
}

func (c *churn) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d pods looked at, failed: %v, problems: %v, not to be seen: %v", c.looked, c.failed, c.problems, c.unseen)
}

// note records the allocation with which a pod was bound.
func (c *churn) note(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.first[pod.Name]; !known && pod.Spec.NodeName != "" {
		c.first[pod.Name] = pod.Annotations[allocation.Key]
	}
}

// serve checks pods that changed, a few at a time.
func (c *churn) serve(ctx context.Context, done *sync.WaitGroup, work chan string, finished chan<- string) {
	var mu sync.Mutex
	busy := map[string]bool{} // being checked, or done
	for range 4 {
		done.Go(func() {
			for {
				var name string
				select {
				case <-ctx.Done():
					return
				case name = <-work:
				}
				mu.Lock()
				skip := busy[name]
				busy[name] = true
				mu.Unlock()
				if skip {
					continue
				}
				over, again := c.attend(ctx, name)
				if over {
					finished <- name
					continue
				}
				mu.Lock()
				busy[name] = false
				mu.Unlock()
				if again > 0 {
					time.AfterFunc(again, func() {
						select {
						case work <- name:
						case <-ctx.Done():
						}
					})
				}
			}
		})
	}
}

// soon is the pause before the next try to check a pod.
const soon = 20 * time.Millisecond

// attend checks a pod and deletes it if its time has come. over reports that the pod is being deleted;
// otherwise it must be attended to again after the returned time, or when it changes.
func (c *churn) attend(ctx context.Context, name string) (over bool, again time.Duration) {
	obj, ok, err := c.lister.GetByKey(metav1.NamespaceDefault + "/" + name)
	if err != nil || !ok {
		return false, 0
	}
	pod := obj.(*v1.Pod)
	switch {
	case pod.Status.Phase == v1.PodFailed || c.patient && startFailed(pod):
		c.refused(pod)
	case pod.Spec.NodeName == "":
		return false, 0
	default:
		if again := c.watch(ctx, pod); again > 0 {
			return false, again
		}
	}
	err = c.env.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		c.problem("delete " + name + ": " + err.Error())
	}
	return true, 0
}

// watch checks a bound pod and returns the time until the next check, 0 for none: then its GPUs are no
// longer taken as its own. The containers' output exists up to a second before kubelet reports that they
// run, so the pod's phase does not matter.
func (c *churn) watch(ctx context.Context, pod *v1.Pod) (again time.Duration) {
	c.mu.Lock()
	before, known := c.begun[pod.Name]
	c.mu.Unlock()
	if wait := time.Until(before.until); known && wait > 0 {
		return wait
	}
	containers, err := c.env.Observe(ctx, pod)
	c.noteUnseen(pod.Name, err)
	switch {
	case errors.Is(err, realnode.ErrNoReport) || err != nil && c.patient:
		return soon
	case err != nil:
		c.problem(err.Error())
		return 0
	case !known:
		return c.take(pod, containers)
	}
	c.release(pod, before.containers, containers)
	return 0
}

// noteUnseen records why a pod could not be checked, until it can.
func (c *churn) noteUnseen(pod string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unseen, pod)
	if err != nil {
		c.unseen[pod] = err.Error()
	}
}

func (c *churn) problem(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, what)
}

// take records a pod's faults, and its GPUs until the next check.
func (c *churn) take(pod *v1.Pod, containers []gpunode.Observation) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked++
	c.last = time.Now()
	c.problems = append(c.problems, c.judge(pod, containers)...)
	if now := pod.Annotations[allocation.Key]; now != c.first[pod.Name] && !c.patient {
		c.problems = append(c.problems, fmt.Sprintf("pod %s: the allocation was changed from %s to %s", pod.Name, c.first[pod.Name], now))
	}
	for _, id := range held(containers) {
		if other, taken := c.owner[id]; taken {
			c.problems = append(c.problems, fmt.Sprintf(testkit.ViolationPrefix+"pods %s and %s both have %s", other, pod.Name, id))
		}
		c.owner[id] = pod.Name
	}
	hold := time.Duration(c.rng.Int64N(int64(c.hold)))
	c.begun[pod.Name] = look{containers: containers, until: c.last.Add(hold)}
	return max(hold, 1)
}

// release drops a pod's GPUs just before it is deleted, and checks that it had them until now.
func (c *churn) release(pod *v1.Pod, before, now []gpunode.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range before {
		if !slices.Equal(before[i].Checkpoint, now[i].Checkpoint) {
			c.problems = append(c.problems, fmt.Sprintf("pod %s, container %s: kubelet recorded %v and then %v",
				pod.Name, before[i].Container, before[i].Checkpoint, now[i].Checkpoint))
		}
	}
	first := map[string]int{} // restarts before the container ran at all
	for _, o := range before {
		first[o.Container] = o.Report.Restarts
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if int(s.RestartCount) > first[s.Name] {
			c.problems = append(c.problems, fmt.Sprintf("pod %s: container %s was restarted", pod.Name, s.Name))
		}
	}
	for _, id := range held(before) {
		delete(c.owner, id)
	}
}

// refused counts a pod that kubelet did not admit or of which a container could not be started, by
// kubelet's message without the parts particular to the pod. A pod that was checked before is counted
// already, and must not fail; only a container whose start is given up may have reported.
func (c *churn) refused(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unseen, pod.Name)
	why := []string{pod.Status.Reason + ": " + pod.Status.Message}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
			why = append(why, fmt.Sprintf("container %s: %s, exit status %d, %s", s.Name, end.Reason, end.ExitCode, end.Message))
		}
	}
	text := strings.Join(why, "; ")
	before, looked := c.begun[pod.Name]
	if !looked {
		c.failed[particular.ReplaceAllString(text, "…")]++
		return
	}
	for _, id := range held(before.containers) {
		if c.owner[id] == pod.Name {
			delete(c.owner, id)
		}
	}
	if !c.patient || !startFailed(pod) {
		c.problems = append(c.problems, fmt.Sprintf("pod %s ran and then failed: %s", pod.Name, text))
	}
}

// particular matches UUIDs of GPUs and pods and the pods' names.
var particular = regexp.MustCompile(`(GPU-)?[0-9a-f]{8}-[0-9a-f-]{27}|pod-[0-9]+`)
