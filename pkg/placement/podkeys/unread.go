// SPDX-License-Identifier: Apache-2.0

package podkeys

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// maxNamed is the greatest number of keys of a pod that a message names.
	maxNamed = 4
	// maxKey bounds how much of a key a message repeats: domains may be long.
	maxKey = 128
)

// Key is a key of a pod that has no effect.
type Key struct {
	Name    string
	Label   bool   // else it is an annotation
	Nearest string // the annotation of nvtopo that was probably meant; empty if none is near
	NoGang  bool   // it is known, and the pod is in no gang
}

// Unread returns the keys of a pod that look like nvtopo's and have no effect: annotations before labels,
// each by name. nvtopo defines no pod labels, so each label is one. It allocates nothing for a pod without
// such keys.
func Unread(pod *v1.Pod) []Key {
	var notes, labels []Key
	_, member := gangrequest.KeyOf(pod)
	for key := range pod.Annotations {
		switch {
		case !strings.HasPrefix(key, lookalike), strings.HasPrefix(key, OutputPrefix):
		case !slices.Contains(annotations, key):
			notes = append(notes, Key{Name: key, Nearest: nearest(key, inputs)})
		case !member && slices.Contains(gangOnly, key):
			notes = append(notes, Key{Name: key, NoGang: true})
		}
	}
	for key := range pod.Labels {
		if strings.HasPrefix(key, lookalike) {
			labels = append(labels, Key{Name: key, Label: true, Nearest: nearest(key, inputs)})
		}
	}
	byName := func(a, b Key) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(notes, byName)
	slices.SortFunc(labels, byName)
	return append(notes, labels...)
}

// String returns why the key has no effect, and the key that was probably meant.
func (k Key) String() string {
	kind, name := "annotation", k.Name
	if k.Label {
		kind = "label"
	}
	if len(name) > maxKey {
		name = name[:maxKey] + "..."
	}
	switch {
	case k.NoGang:
		return fmt.Sprintf("%s %s is for members of gangs, and the pod is in none: it lacks %s", kind, name, gangrequest.GangKey)
	case k.Nearest == "":
		return fmt.Sprintf("%s %s is not known", kind, name)
	case k.Label:
		return fmt.Sprintf("%s %s is not known; nearest is the annotation %s", kind, name, k.Nearest)
	}
	return fmt.Sprintf("%s %s is not known; nearest is %s", kind, name, k.Nearest)
}

// Message returns a text about the keys that Unread returned and that they have no effect; empty if there
// are none.
func Message(keys []Key) string {
	if len(keys) == 0 {
		return ""
	}
	var texts []string
	for _, k := range keys[:min(len(keys), maxNamed)] {
		texts = append(texts, k.String())
	}
	if more := len(keys) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	it := "it"
	if len(keys) > 1 {
		it = "them"
	}
	text := strings.Join(texts, "; ") + "; the pod is scheduled without " + it
	return strings.ToUpper(text[:1]) + text[1:]
}
