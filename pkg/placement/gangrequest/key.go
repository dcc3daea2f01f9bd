// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
)

// Source is the mechanism that makes pods a gang.
type Source uint8

// The sources, in the order in which they are checked.
const (
	SourcePodGroup   Source = iota + 1 // a PodGroup of scheduling.x-k8s.io and its label
	SourceKueue                        // Kueue's pod groups
	SourceAnnotation                   // two plain annotations
)

// String returns the noun for the gang in messages.
func (s Source) String() string {
	switch s {
	case SourcePodGroup:
		return "PodGroup"
	case SourceKueue:
		return "Kueue pod group"
	case SourceAnnotation:
		return "gang"
	}
	return "no gang"
}

// maxName is the greatest length of a gang's name: that of an API object.
const maxName = 253

// Key identifies a gang.
type Key struct {
	Source          Source
	Namespace, Name string
}

// String returns the gang's name for messages, such as "PodGroup ns/name".
func (k Key) String() string { return k.Source.String() + " " + k.Namespace + "/" + k.Name }

// elsewhere is the text for a gang in messages to users of another namespace.
const elsewhere = "a gang of another namespace"

// NameIn returns the gang's name for messages to users of a namespace. Names of other namespaces' gangs
// are not shown to them.
func (k Key) NameIn(namespace string) string {
	if k.Namespace != namespace {
		return elsewhere
	}
	return k.String()
}

// KeyOf returns the gang that a pod is a member of. It reads three keys and allocates nothing, since it is
// called for every pod.
//
// A pod group that Kueue admits with its first pod (a StatefulSet's, whose pods are made one after the
// other) is no gang: its first member would wait for the others for ever. A name that is too long is cut,
// and Read then reports it.
func KeyOf(pod *v1.Pod) (Key, bool) {
	if name := pod.Labels[schedulingv1alpha1.PodGroupLabel]; name != "" {
		return Key{SourcePodGroup, pod.Namespace, name}, true
	}
	if name := pod.Labels[kueueGroupLabel]; name != "" {
		if _, fast := pod.Annotations[kueueFastKey]; !fast {
			return Key{SourceKueue, pod.Namespace, name}, true
		}
	}
	if name, ok := pod.Annotations[GangKey]; ok {
		return Key{SourceAnnotation, pod.Namespace, bounded(name)}, true
	}
	return Key{}, false
}

// NearOf returns the gangs that a pod that is in none wants to be near to: the possible meanings of the
// name, in the order of the sources.
func NearOf(pod *v1.Pod) (keys [3]Key, ok bool) {
	name := pod.Annotations[NearKey]
	if name == "" || len(name) > maxName { // no gang has such a name
		return keys, false
	}
	if _, member := KeyOf(pod); member {
		return keys, false
	}
	for i := range keys {
		keys[i] = Key{Source(i) + SourcePodGroup, pod.Namespace, name}
	}
	return keys, true
}

// bounded cuts a name to one byte more than the longest.
func bounded(name string) string { return name[:min(len(name), maxName+1)] }
