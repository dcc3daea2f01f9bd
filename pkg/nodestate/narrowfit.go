// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// admits reports whether a node is worth listing: its graph counts, and nothing
// that is cheap to see keeps the pod away.
func (l *lister) admits(x *index, i int) bool {
	if l.checks++; l.checks > maxChecks {
		return false
	}
	e := &x.entries[i]
	n := e.node
	if n == nil || e.cell.topology.Vouched(n, l.now) != placement.Fits || l.s.enforcement(l.d, n) != placement.Fits || !l.fits(i) {
		return false
	}
	return true
}

// fits sees what keeps most pods off a node: cordons, taints, labels, too little of
// what the pod requests, and what was promised to others. Filter plugins have the
// last word.
func (l *lister) fits(i int) bool {
	info := l.nodes[i]
	return l.allowed(info.Node()) && l.d.hasRoom(info.GetAllocatable(), info.GetRequested(), len(info.GetPods())) && !l.keptForOthers(i)
}

// allowed reports whether neither taints nor labels keep the pod off.
func (l *lister) allowed(node *v1.Node) bool {
	return l.tolerates(node) && (!l.selects || l.selected(node))
}

func (l *lister) tolerates(node *v1.Node) bool {
	if node.Spec.Unschedulable {
		cordon := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
		if !corev1.TolerationsTolerateTaint(klog.Background(), l.pod.Spec.Tolerations, &cordon, true) {
			return false
		}
	}
	if len(node.Spec.Taints) == 0 {
		return true
	}
	_, bad := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, l.pod.Spec.Tolerations, helper.DoNotScheduleTaintsFilterFunc(), true)
	return !bad
}

func (l *lister) selected(node *v1.Node) bool {
	ok, err := l.required.Match(node)
	return ok && err == nil
}

// hasRoom reports whether a node with so many pods has enough of what the pod requests.
func (d *Demand) hasRoom(have, used fwk.Resource, pods int) bool {
	if have.GetMilliCPU()-used.GetMilliCPU() < d.MilliCPU || have.GetMemory()-used.GetMemory() < d.Memory ||
		have.GetAllowedPodNumber() <= pods {
		return false
	}
	if have.GetEphemeralStorage()-used.GetEphemeralStorage() < d.EphemeralStorage {
		return false
	}
	for name, n := range d.Scalars {
		if have.GetScalarResources()[name]-used.GetScalarResources()[name] < n {
			return false
		}
	}
	return true
}
