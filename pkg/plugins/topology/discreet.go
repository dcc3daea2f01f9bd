// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// discreet is the framework's handle for Kubernetes' preemption. Its event on a victim refers to the pod
// that it is evicted for, unless that is of another namespace: whose pods are called what is not for
// the victim's owner.
type discreet struct{ fwk.Handle }

// EventRecorder returns the framework's, which refers to no object of another namespace.
func (d discreet) EventRecorder() events.EventRecorder {
	return discreetRecorder{d.Handle.EventRecorder()}
}

type discreetRecorder struct{ events.EventRecorder }

// Eventf writes an event.
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
