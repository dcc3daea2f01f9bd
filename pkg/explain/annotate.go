// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// removals are the annotations without which a cause is none.
var removals = map[Cause]string{
	causeOf(placement.UnknownGPUMemory): podrequest.MinGPUMemoryKey,
	causeOf(placement.UnknownGPUModel):  podrequest.GPUModelKey,
}

// change says which change of an annotation would let the pod in now, and how to make it: the most demanding of
// the values that are tried. It is empty if no such change is known.
func (s *scene) change(q *question, cause Cause) string {
	if cause == causeOf(placement.FewOneModel) {
		mixed := wish{drop: func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, podrequest.AllowMixedModelsKey, "true") }}
		return s.ifRoom(q, mixed, podrequest.AllowMixedModelsKey, "true")
	}
	for _, w := range s.wishesOf(q) {
		if w.key != "" && removals[cause] == podrequest.CanonicalKey(w.key) {
			return s.ifRoom(q, w, w.key, "")
		}
		if w.key == "" || w.cause != cause {
			continue
		}
		for _, value := range s.lesserValues(w.key, []wish{w}, []*question{q}) {
			if how := s.ifRoom(q, w.lowered(value), w.key, value); how != "" {
				return how
			}
		}
	}
	return ""
}

// ifRoom says how to change an annotation, if the pod has room then.
func (s *scene) ifRoom(q *question, changed wish, key, value string) string {
	if s.relaxed(q, changed) == nil {
		return ""
	}
	to := key + " " + value
	if value == "" {
		to = "no " + key
	}
	return fmt.Sprintf("; with %s there is room now%s", to, annotate([]*question{q}, annotation{key, value}))
}

// annotate is, in parentheses, the command that changes annotations of a pod; of a pod that a controller makes
// it names the object whose template is to be changed. It is empty for several pods, and for members of gangs,
// which are changed together, if no controller makes them.
func annotate(shapes []*question, changes ...annotation) string {
	if len(shapes) != 1 {
		return ""
	}
	p := shapes[0].pod
	if owner := metav1.GetControllerOf(p); owner != nil {
		text := fmt.Sprintf(" (in the pod template of %s %s/%s", owner.Kind, p.Namespace, owner.Name)
		switch owner.Kind {
		case "Job":
			text += ", which has to be made anew, as a Job's template cannot be changed"
		case "ReplicaSet":
			text += ", or of the Deployment that made it"
		}
		return text + ")"
	}
	if _, member := gangrequest.KeyOf(p); member {
		return ""
	}
	args := make([]string, 0, len(changes))
	for _, a := range changes {
		if a.value == "" {
			args = append(args, a.key+"-")
		} else {
			args = append(args, a.key+"="+a.value)
		}
	}
	return fmt.Sprintf(" (kubectl -n %s annotate --overwrite pod %s %s)", p.Namespace, p.Name, strings.Join(args, " "))
}
