// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Kubelet's reports about ended pods are shared by all parts of the agent: kubelet limits the rate of
// requests.

// Name returns the name of a pod that was given devices of a resource, also by an earlier agent.
// Kubelet's record has only UIDs, but kubelet's service finds pods by name.
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

// Ended reports whether kubelet reported that it does not know the pod, at a time when the API server did
// not have it either: such a pod does not return while this kubelet runs.
func (s *Steering) Ended(uid types.UID) bool {
	return slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.ended[uid]
	})
}

// LearnEnded records that Ended is true for the pod.
func (s *Steering) LearnEnded(uid types.UID) {
	for _, sh := range s.all() {
		sh.mu.Lock()
		if sh.served[uid] != nil {
			sh.ended[uid] = true
		}
		sh.mu.Unlock()
	}
}

// KubeletStarted forgets all ended pods: a kubelet that has just started knows no pod yet.
func (s *Steering) KubeletStarted() {
	for _, sh := range s.all() {
		sh.mu.Lock()
		clear(sh.ended)
		sh.mu.Unlock()
	}
}
