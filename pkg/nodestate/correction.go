// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
)

// CorrectionBody is a merge patch that makes the pod's output annotations those
// wanted. UID and resource version make the API server refuse it for a pod that was
// made anew under the name, or has changed since it was read.
func CorrectionBody(pod *v1.Pod, wanted map[string]string) ([]byte, error) {
	type meta struct {
		UID             types.UID          `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	}
	all := map[string]*string{}
	for key := range pod.Annotations {
		if IsOutputKey(key) {
			all[key] = nil
		}
	}
	for key, value := range wanted {
		all[key] = &value
	}
	b, err := json.Marshal(struct {
		Metadata meta `json:"metadata"`
	}{meta{UID: pod.UID, ResourceVersion: pod.ResourceVersion, Annotations: all}})
	if err != nil {
		return nil, fmt.Errorf("encoding the annotations: %w", err)
	}
	return b, nil
}

// HasAliases reports whether the scheduler wrote the keys of other systems too.
func HasAliases(pod *v1.Pod) bool {
	for _, key := range []string{GPUIDsAlias, NUMANodeAlias} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	return false
}

// misplaced returns the choice that a pod was bound with and does not carry, or nil.
// In mode PreBind annotation and node name are two writes: a Binding believed lost
// may be carried out after the PATCH of the next attempt, for another node. The claim
// of the first attempt then says what the pod has.
func (s *State) misplaced(c *claim, pod *v1.Pod) *Allocation {
	if pod.UID != c.uid || pod.Spec.NodeName != c.node || s.allocationOf(pod, c.node) != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase != doubtful {
		return nil
	}
	for _, o := range s.claims[c.uid] {
		if o != c && o.node == c.node && !o.alloc.Equal(c.alloc) {
			return nil // nobody knows which of them was carried out
		}
	}
	return c.alloc
}

// correct writes a pod's annotations anew, with the choice that it was bound with.
// The claim stays until the informer shows that.
func (s *State) correct(ctx context.Context, client clientset.Interface, pod *v1.Pod, a *Allocation) error {
	wanted, err := s.Annotations(a, HasAliases(pod))
	if err != nil {
		return err
	}
	body, err := CorrectionBody(pod, wanted)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}
