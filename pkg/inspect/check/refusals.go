// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// checkRefusals notes nodes whose kubelets refuse pods with GPUs again and again, with some of the
// pods that were refused lately.
func (s *scene) checkRefusals() {
	seen := refusals.Seen(s.w.Pods)
	marks := refusals.Of(seen, s.w.Now)
	if len(marks) == 0 {
		return
	}
	lately := map[types.UID]string{} // pod -> the node that refused it
	for i := range seen {
		if r := &seen[i]; r.Counts(s.w.Now) {
			lately[r.Pod] = r.Node
		}
	}
	pods := map[string][]Object{} // by node
	for i := range s.w.Pods {
		p := &s.w.Pods[i]
		if node, ok := lately[p.UID]; ok && len(pods[node]) < refusals.Enough {
			pods[node] = append(pods[node], podObject(p))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		mark := marks[name]
		v := Violation{Invariant: KubeletRefuses, Objects: []Object{{Kind: "Node", Name: name}}, Message: mark.String()}
		if n := s.nodes[name]; n != nil && n.object != nil {
			v.Objects[0].UID = n.object.UID
		}
		v.Objects = append(v.Objects, pods[name]...)
		s.note(v)
	}
}
