// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watch checks the tenants' limits at every change of a pod.
type watch struct {
	mu     sync.Mutex
	pods   map[types.UID]held // guarded by mu
	wrong  []string           // guarded by mu; the first few violations of a limit
	checks int                // guarded by mu
	ended  map[string]int     // guarded by mu; by tenant, pods that were to go while they ran
}

// held holds the GPUs of a bound pod that neither ended nor is about to be deleted.
type held struct {
	tenant, node string
	gpus         int64
}

// startWatch returns once all existing pods have been seen. It ends with ctx.
func startWatch(ctx context.Context, client kubernetes.Interface) (*watch, error) {
	w := &watch{pods: map[types.UID]held{}, ended: map[string]int{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(o, false) },
		UpdateFunc: func(_, o any) { w.see(o, false) },
		DeleteFunc: func(o any) { w.see(o, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch the pods: the watch does not start")
	}
	return w, nil
}

func (w *watch) see(o any, gone bool) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	pod, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	if gone || ended || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		if h, held := w.pods[pod.UID]; held && !ended {
			w.ended[h.tenant]++
		}
		delete(w.pods, pod.UID)
		return
	}
	w.pods[pod.UID] = held{tenant: pod.Namespace, node: pod.Spec.NodeName, gpus: gpusOf(&pod.Spec)}
	w.check()
}

// check records the tenants beyond their limits. The caller holds mu.
func (w *watch) check() {
	const first = 5
	w.checks++
	sum, by := int64(0), w.byTenant()
	for _, t := range tenants() {
		sum += by[t.name]
		if by[t.name] > t.limit && len(w.wrong) < first {
			w.wrong = append(w.wrong, fmt.Sprintf("%s held %d GPUs, its limit is %d", t.name, by[t.name], t.limit))
		}
	}
	if sum > capacity && len(w.wrong) < first {
		w.wrong = append(w.wrong, fmt.Sprintf("the tenants held %d GPUs, the pool gives %d", sum, int64(capacity)))
	}
}

// byTenant returns how many GPUs each tenant holds. The caller holds mu.
func (w *watch) byTenant() map[string]int64 {
	out := map[string]int64{}
	for _, h := range w.pods {
		out[h.tenant] += h.gpus
	}
	return out
}

// now returns the pods that hold GPUs, and the number by tenant.
func (w *watch) now() (pods []held, by map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.pods {
		pods = append(pods, h)
	}
	return pods, w.byTenant()
}

// deleted returns how many running pods of each tenant were deleted so far.
func (w *watch) deleted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ended)
}

// verdict returns the violations of limits so far, and the number of checks.
func (w *watch) verdict() (wrong []string, checks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong, w.checks
}

func gpusOf(spec *v1.PodSpec) (n int64) {
	for i := range spec.Containers {
		quantity := spec.Containers[i].Resources.Limits[gpu]
		n += quantity.Value()
	}
	return n
}
