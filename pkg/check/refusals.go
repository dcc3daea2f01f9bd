// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/refusals"
)

// checkRefusals notes nodes whose kubelets refuse pods with GPUs again and again, with some of the pods.
func (s *scene) checkRefusals() {
	seen := refusals.Seen(s.w.Pods)
	marks := refusals.Of(seen, s.w.Now)
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		mark := marks[name]
		v := Violation{Invariant: KubeletRefuses, Objects: []Object{{Kind: "Node", Name: name}}, Message: mark.String()}
		if n := s.nodes[name]; n != nil && n.object != nil {
			v.Objects[0].UID = n.object.UID
		}
		for i := range s.w.Pods {
			p := &s.w.Pods[i]
			if len(v.Objects) <= refusals.Enough && slices.ContainsFunc(seen, func(r refusals.Refusal) bool { return r.Pod == p.UID && r.Node == name }) {
				v.Objects = append(v.Objects, podObject(p))
			}
		}
		s.note(v)
	}
}
