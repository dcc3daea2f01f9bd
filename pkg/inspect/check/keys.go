// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
)

const (
	// maxKeyNotes bounds the notes of keys that nothing reads, and maxKeyPods the pods that one of them names.
	maxKeyNotes = 20
	maxKeyPods  = 3
)

// unreadKeys are keys that nothing reads, with the pods of a namespace that have just these.
type unreadKeys struct {
	namespace, message, field string
	pods                      []Object
	more                      int // pods that are not named
}

// checkKeys notes pods with keys that look like ours and that nothing reads, as the event KeyIgnored and explain
// say of one pod. Pods of a namespace with the same keys, such as those of one Deployment, are one note.
func (s *scene) checkKeys() {
	var all []unreadKeys
	left := 0 // pods whose note is one too many
	for _, pod := range s.livePods() {
		if !s.ours(pod.Spec.SchedulerName) {
			continue // of others nobody reads any of our keys
		}
		keys := podkeys.Unread(pod)
		if len(keys) == 0 {
			continue
		}
		message := podkeys.Message(keys)
		at := slices.IndexFunc(all, func(u unreadKeys) bool { return u.namespace == pod.Namespace && u.message == message })
		switch {
		case at < 0 && len(all) == maxKeyNotes:
			left++
			continue
		case at < 0:
			at, all = len(all), append(all, unreadKeys{namespace: pod.Namespace, message: message, field: fieldOf(keys[0])})
		}
		if u := &all[at]; len(u.pods) < maxKeyPods {
			u.pods = append(u.pods, podObject(pod))
		} else {
			u.more++
		}
	}
	for i := range all {
		u := &all[i]
		v := Violation{Invariant: IgnoredKey, Objects: u.pods, Field: u.field, Message: u.message}
		if u.more > 0 {
			v.Message += fmt.Sprintf("; %d more pods of namespace %s have the same", u.more, u.namespace)
		}
		if i == len(all)-1 && left > 0 {
			v.Message += fmt.Sprintf("; %d more pods have other keys that nothing reads: nvtopo explain names them pod by pod", left)
		}
		s.note(v)
	}
}

// livePods are the pods that have not ended, by namespace and name.
func (s *scene) livePods() []*v1.Pod {
	var out []*v1.Pod
	for i := range s.w.Pods {
		if p := &s.w.Pods[i]; p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int { return compareObjects(podObject(a), podObject(b)) })
	return out
}

// ours reports whether a scheduler's name is one of our profiles.
func (s *scene) ours(name string) bool {
	_, known := s.profiles[name]
	return known || s.w.Published != nil && slices.ContainsFunc(s.w.Published.Profiles, func(p diagnosis.Profile) bool { return p.Name == name })
}

// fieldOf is the field of a pod that has the key.
func fieldOf(k podkeys.Key) string {
	if k.Label {
		return "metadata.labels[" + k.Name + "]"
	}
	return "metadata.annotations[" + k.Name + "]"
}
