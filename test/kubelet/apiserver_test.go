// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const thisNode = "node-1"

// apiServer is the API server's list of the node's pods, and a watch of it that a test can delay.
type apiServer struct {
	mu      sync.Mutex
	version int
	pods    map[types.UID]*v1.Pod
	unseen  map[types.UID]bool    // in the list, not yet in the watch
	lingers map[types.UID]*v1.Pod // old versions that the watch still shows of changed or deleted objects
	down    bool
	lists   int
}

func newAPIServer() *apiServer {
	return &apiServer{pods: map[types.UID]*v1.Pod{}, unseen: map[types.UID]bool{}, lingers: map[types.UID]*v1.Pod{}}
}

// Pods returns the pods of the agent's watch.
func (a *apiServer) Pods() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := maps.Clone(a.pods)
	maps.DeleteFunc(seen, func(uid types.UID, _ *v1.Pod) bool { return a.unseen[uid] })
	maps.Copy(seen, a.lingers)
	return slices.Collect(maps.Values(seen))
}

// Changed never fires: a delayed watch delivers nothing.
func (a *apiServer) Changed() <-chan struct{} { return nil }

// Live returns a list from the API server.
func (a *apiServer) Live(ctx context.Context) ([]*v1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	if a.down {
		return nil, errors.New("the API server does not answer")
	}
	return slices.Collect(maps.Values(a.pods)), ctx.Err()
}

// put stores a version of a pod.
func (a *apiServer) put(pod *v1.Pod) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(a.version)
	pod.Spec.NodeName = thisNode
	a.pods[pod.UID] = pod
	return pod
}

// update changes the stored version of a pod.
func (a *apiServer) update(uid types.UID, change func(*v1.Pod)) *v1.Pod {
	a.mu.Lock()
	pod := a.pods[uid].DeepCopy()
	a.mu.Unlock()
	change(pod)
	return a.put(pod)
}

func (a *apiServer) remove(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, uid)
}

// hide delays the watch for a pod; show ends that.
func (a *apiServer) hide(uid types.UID) { a.set(uid, true) }
func (a *apiServer) show(uid types.UID) { a.set(uid, false) }

func (a *apiServer) set(uid types.UID, unseen bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unseen[uid] = unseen
}

// linger makes the watch show the present version of a pod in spite of later changes.
func (a *apiServer) linger(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lingers[uid] = a.pods[uid]
}

// choice is the scheduler's choice: container -> ids.
type choice map[string][]string

// annotate writes a choice of GPUs on a pod as the scheduler does.
func annotate(tb testing.TB, pod *v1.Pod, chosen choice) *v1.Pod {
	tb.Helper()
	return annotateResources(tb, pod, map[string]choice{gpu: chosen})
}

func annotateResources(tb testing.TB, pod *v1.Pod, chosen map[string]choice) *v1.Pod {
	tb.Helper()
	a := &allocation.Allocation{Version: allocation.Version, Node: thisNode, PodUID: pod.UID, Assumed: pod.CreationTimestamp.Time}
	for _, resource := range slices.Sorted(maps.Keys(chosen)) {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if ids := chosen[resource][c.Name]; len(ids) > 0 {
				init := c.RestartPolicy == nil && slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
				a.Containers = append(a.Containers, allocation.Container{Name: c.Name, Resource: resource, Init: init, GPUs: ids})
			}
		}
	}
	text, err := a.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	pod.Annotations = map[string]string{allocation.Key: text}
	return pod
}

// ids returns G<n> for each n.
func ids(numbers ...int) []string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = fmt.Sprintf("G%d", n)
	}
	return out
}
