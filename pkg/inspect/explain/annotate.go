// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// roomNow says that there is room once an annotation is changed, and how to change it.
func roomNow(shapes []*question, to annotation) string {
	text := to.key + " " + to.value
	if to.value == "" {
		text = "no " + to.key
	}
	return fmt.Sprintf("; with %s there is room now%s", text, annotate(shapes, to))
}

// annotate is, in parentheses, the command that changes annotations of pods of some shapes, or of all
// members of their gang that ask the same; see command. Members that get different changes have a command
// each, the first maxNamed of them.
func annotate(shapes []*question, changes ...annotation) string {
	if len(shapes) == 1 && shapes[0].members == nil {
		return command([]*v1.Pod{shapes[0].pod}, changes...)
	}
	type changed struct {
		pods    []*v1.Pod
		changes []annotation
	}
	var all []changed
	for _, p := range shapes[0].members {
		var own []annotation
		for _, c := range changes {
			if _, ofGroup := shapes[0].group[c.key]; ofGroup {
				return "" // what the pods say under it does not count
			}
			if c.isFor(p, shapes) {
				own = append(own, c)
			}
		}
		same := func(c changed) bool { return slices.EqualFunc(c.changes, own, annotation.equal) }
		switch at := slices.IndexFunc(all, same); {
		case len(own) == 0:
		case at < 0:
			all = append(all, changed{[]*v1.Pod{p}, own})
		default:
			all[at].pods = append(all[at].pods, p)
		}
	}
	var commands []string
	for _, c := range all[:min(maxNamed, len(all))] {
		commands = append(commands, command(c.pods, c.changes...))
	}
	more := 0
	for _, c := range all[len(commands):] {
		more += len(c.pods)
	}
	text := strings.Join(commands, " and")
	if more > 0 {
		text += ", and so for " + counted(more, "member") + " more"
	}
	return text
}

func (a annotation) equal(o annotation) bool { return a.key == o.key && a.value == o.value }

// isFor reports whether a member of a gang has what is changed.
func (a annotation) isFor(p *v1.Pod, shapes []*question) bool {
	if a.by != nil {
		shapes = a.by
	}
	value, has := p.Annotations[a.key]
	same := func(q *question) bool { v, ok := q.pod.Annotations[a.key]; return ok && v == value }
	return a.key == gangrequest.MixedModelsKey || has && slices.ContainsFunc(shapes, same)
}

// maxCommand bounds the pods that a command names.
const maxCommand = 8

// command returns, in parentheses, the command that changes annotations of pods. For pods of a controller it
// names the object with the template, but not for a Job, whose template cannot be changed.
func command(pods []*v1.Pod, changes ...annotation) string {
	if len(pods) == 0 {
		return ""
	}
	owner := metav1.GetControllerOf(pods[0])
	if owner != nil && owner.Kind != "Job" {
		text := fmt.Sprintf(" (in the pod template of %s %s/%s", owner.Kind, pods[0].Namespace, owner.Name)
		if owner.Kind == "ReplicaSet" {
			text += ", or of the Deployment that made it"
		}
		other := func(p *v1.Pod) bool { o := metav1.GetControllerOf(p); return o == nil || o.UID != owner.UID }
		if slices.ContainsFunc(pods, other) {
			text += ", and so for the members that it does not make"
		}
		return text + ")"
	}
	args := []string{}
	for _, p := range pods[:min(maxCommand, len(pods))] {
		args = append(args, p.Name)
	}
	for _, a := range changes {
		if a.value == "" {
			args = append(args, a.key+"-")
		} else {
			args = append(args, a.key+"="+a.value)
		}
	}
	rest := ""
	if more := len(pods) - maxCommand; more > 0 {
		rest = ", and so for " + counted(more, "member") + " more"
	}
	if owner != nil {
		rest += fmt.Sprintf("; pods that Job %s makes later need it again, as its template cannot be changed", owner.Name)
	}
	return fmt.Sprintf(" (kubectl -n %s annotate --overwrite pod %s%s)", pods[0].Namespace, strings.Join(args, " "), rest)
}
