// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Kubelet's answers about ended pods are kept for all parts of the agent that would
// ask: kubelet limits the rate of its answers.

// Name returns the name of a pod that was given devices of a resource, also if an
// earlier agent gave them. Kubelet's record has only UIDs, but kubelet answers by name.
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

// Ended reports whether kubelet said that it does not know the pod, at a time when the
// API server did not have it either: such a pod does not come back while this kubelet
// runs.
func (s *Steering) Ended(uid types.UID) bool {
	return slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.ended[uid]
	})
}

// LearnEnded records that the pod is one for which Ended is true.
func (s *Steering) LearnEnded(uid types.UID) {
	for _, sh := range s.all() {
		sh.mu.Lock()
		if sh.served[uid] != nil {
			sh.ended[uid] = true
		}
		sh.mu.Unlock()
	}
}

// KubeletStarted forgets all ended pods: a kubelet that has just started knows no pod
// yet.
func (s *Steering) KubeletStarted() {
	for _, sh := range s.all() {
		sh.mu.Lock()
		clear(sh.ended)
		sh.mu.Unlock()
	}
}
