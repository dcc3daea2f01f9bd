// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// What kubelet said of pods that have ended is kept for everybody on the node who
// would ask: its answers are rationed.

// Name tells the name of a pod that was given devices of a resource, also by an agent
// before this one: kubelet's record has UIDs only, and answers by name.
func (s *Steering) Name(ctx context.Context, resource string, uid types.UID) (namespace, name string, ok bool) {
	sh := s.shelf(klog.FromContext(ctx), resource)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p := sh.served[uid]
	if p == nil || p.name == "" {
		return "", "", false
	}
	return p.namespace, p.name, true
}

// Ended reports whether kubelet said that it does not know a pod, when the API server
// did not have it either: it does not come back while this kubelet runs.
func (s *Steering) Ended(uid types.UID) bool {
	return slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.ended[uid]
	})
}

// LearnEnded takes that down.
func (s *Steering) LearnEnded(uid types.UID) {
	for _, sh := range s.all() {
		sh.mu.Lock()
		if sh.served[uid] != nil {
			sh.ended[uid] = true
		}
		sh.mu.Unlock()
	}
}

// KubeletStarted forgets it: a kubelet that starts knows nobody at first.
func (s *Steering) KubeletStarted() {
	for _, sh := range s.all() {
		sh.mu.Lock()
		clear(sh.ended)
		sh.mu.Unlock()
	}
}
