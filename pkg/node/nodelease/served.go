// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"bytes"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ProgramLabel is the pod label with the name of the pod's Program.
const ProgramLabel = "app.kubernetes.io/name"

// Program returns the DaemonSet whose pods renew the Leases with a prefix.
func Program(prefix string) string {
	if prefix == AgentPrefix {
		return "nvtopo-node-agent"
	}
	return "nvtopo-exporter"
}

// Commands returns shell commands that show who renewed a node's Lease and when, and the pod on the node
// that should renew it. A node name that a shell might interpret, possible in names from files, is
// replaced by NODE.
func Commands(namespace, prefix, node string) string {
	if len(validation.IsDNS1123Subdomain(node)) > 0 {
		node = "NODE"
	}
	return fmt.Sprintf("kubectl -n %[1]s get lease %[2]s%[3]s -o custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,RENEWED:.spec.renewTime; "+
		"kubectl -n %[1]s get pods -o wide -l "+ProgramLabel+"=%[4]s --field-selector spec.nodeName=%[3]s", namespace, prefix, node, Program(prefix))
}

// Renewed returns when a Lease was last renewed, by the API server's clock if possible: renewTime comes
// from the clock of the renewing node, which is not trusted. A process with a watch uses the time when it
// saw a renewal. One that reads only once uses this.
//
// The programs on nodes renew with an apply that always changes renewTime, so the API server records its
// time, in whole seconds. A manual update of the Lease takes the field from the program's apply, and then
// the value of renewTime is used.
func Renewed(l *coordinationv1.Lease) (t time.Time) {
	for _, m := range Renewals(l) {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Time.After(t) {
			t = m.Time.Time
		}
	}
	if t.IsZero() && l.Spec.RenewTime != nil {
		t = l.Spec.RenewTime.Time
	}
	return t
}

// Renewals returns the managed fields of renewals: an apply of a program on a node, or an update, as by
// the leader of the schedulers.
func Renewals(l *coordinationv1.Lease) (out []metav1.ManagedFieldsEntry) {
	for i := range l.ManagedFields {
		m := &l.ManagedFields[i]
		if m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.Raw, []byte(`"f:renewTime"`)) && m.Time != nil {
			out = append(out, *m)
		}
	}
	return out
}

// SetOnce records a Lease as Set does, for a process that reads only once: renewed at Renewed(l).
func (t *Table) SetOnce(l *coordinationv1.Lease, now time.Time) {
	if l.Spec.RenewTime == nil {
		return
	}
	served := *l
	served.Spec.RenewTime = new(metav1.NewMicroTime(Renewed(l)))
	t.Set(&served, now)
}
