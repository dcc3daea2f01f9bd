// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// viewer creates views of pods and caches them by version: a node has up to some hundred pods, and
// kubelet waits.
type viewer struct {
	node    string
	ignored func(reason string) // called once for each annotation that is not used

	mu   sync.Mutex
	made map[types.UID]madeView // API UID -> view; guarded by mu
	told map[annotation]bool    // ignored was called for it; guarded by mu
}

// annotation is the annotation text of one pod.
type annotation struct {
	uid  types.UID // the API server's
	text string
}

type madeView struct {
	version string
	view    *podfinder.Pod
}

// of returns the views under the lock.
func (v *viewer) of(pods []*v1.Pod) []*podfinder.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.views(pods)
}

// views returns the node's pods, each once. It needs mu.
func (v *viewer) views(pods []*v1.Pod) []*podfinder.Pod {
	made := make(map[types.UID]madeView, len(pods))
	out := make([]*podfinder.Pod, 0, len(pods))
	own := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		own[pod.UID] = true
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != v.node {
			continue
		}
		m, ok := v.made[pod.UID]
		if !ok || m.version == "" || m.version != pod.ResourceVersion {
			m = madeView{version: pod.ResourceVersion, view: v.newView(pod)}
		}
		made[pod.UID] = m
		if m.view.UID != pod.UID && own[m.view.UID] {
			itself := *m.view // any user can claim that a pod is another pod's mirror
			itself.UID = pod.UID
			m.view = &itself
		}
		out = append(out, m.view)
	}
	v.made = made
	return out
}

// forget removes the entries of pods that are gone.
func (v *viewer) forget(pods []*v1.Pod) {
	here := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		here[pod.UID] = true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.told, func(a annotation, _ bool) bool { return !here[a.uid] })
}

// newView returns the view of a pod, and reports its unused annotation once. It needs mu.
func (v *viewer) newView(pod *v1.Pod) *podfinder.Pod {
	// A pod has many versions, and different lists of pods come alternately.
	key := annotation{pod.UID, pod.Annotations[allocation.Key]}
	unused := false
	p := podfinder.PodOf(pod, v.node, func(reason string) {
		unused = true
		if !v.told[key] {
			v.ignored(reason)
		}
	})
	if unused {
		if v.told == nil {
			v.told = map[annotation]bool{}
		}
		v.told[key] = true
	}
	return p
}
