// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// discreet is the framework's handle for Kubernetes' preemption. Its event on a victim refers to the
// preemptor only if both are of one namespace: names of pods in other namespaces are not shown to the
// victim's owner.
type discreet struct{ fwk.Handle }

// EventRecorder returns the framework's recorder without references to objects of other namespaces.
func (d discreet) EventRecorder() events.EventRecorder {
	return discreetRecorder{d.Handle.EventRecorder()}
}

type discreetRecorder struct{ events.EventRecorder }

// Eventf writes an event, without the related object if that is of another namespace.
func (r discreetRecorder) Eventf(on, related runtime.Object, kind, reason, action, note string, args ...any) {
	if related != nil && namespaceOf(on) != namespaceOf(related) {
		related = nil
	}
	r.EventRecorder.Eventf(on, related, kind, reason, action, note, args...)
}

func namespaceOf(object runtime.Object) string {
	o, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return o.GetNamespace()
}
