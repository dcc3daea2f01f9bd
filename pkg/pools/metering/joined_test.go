// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// wrote returns the managed fields entry of a write at a minute, by an owner of
// these fields.
func wrote(at int, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: "m", Subresource: subresource, Time: new(stamp(at)), FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
}

const (
	tenantLabel = `{"f:metadata":{"f:labels":{".":{},"f:pool.nvtopo.dev/tenant":{}}}}`
	poolLabel   = `{"f:metadata":{"f:labels":{"f:gpu":{}}}}`
	poolNodes   = `{"f:spec":{"f:nodeSelector":{".":{},"f:gpu":{}}}}`
	cordon      = `{"f:spec":{"f:unschedulable":{}}}`
)

func TestJoined(t *testing.T) {
	chosen := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "a100", "zone": "z"} }
	for name, tc := range map[string]struct {
		pod                   *v1.Pod
		namespace, node, pool []metav1.ManagedFieldsEntry
		want                  int // minute; the pool was made at 5
	}{
		"nobody is known to have written anything": {pod: aPod(free), want: 5},
		"the namespace was labelled last": {
			pod: aPod(free), namespace: []metav1.ManagedFieldsEntry{wrote(30, "", tenantLabel)}, node: []metav1.ManagedFieldsEntry{wrote(7, "", poolLabel)}, want: 30,
		},
		"the node was labelled last": {
			pod: aPod(free), namespace: []metav1.ManagedFieldsEntry{wrote(7, "", tenantLabel)}, node: []metav1.ManagedFieldsEntry{wrote(30, "", poolLabel)}, want: 30,
		},
		"the pool was given other nodes last":   {pod: aPod(free), pool: []metav1.ManagedFieldsEntry{wrote(30, "", poolNodes)}, want: 30},
		"two own the label: the later of both":  {pod: aPod(free), node: []metav1.ManagedFieldsEntry{wrote(8, "", poolLabel), wrote(9, "", poolLabel)}, want: 9},
		"others wrote other fields later":       {pod: aPod(free), node: []metav1.ManagedFieldsEntry{wrote(8, "", poolLabel), wrote(40, "", cordon)}, want: 8},
		"fields that cannot be read":            {pod: aPod(free), node: []metav1.ManagedFieldsEntry{wrote(40, "", `{"f:metadata":7}`), wrote(41, "", `[`)}, want: 5},
		"an entry without time or fields":       {pod: aPod(free), node: []metav1.ManagedFieldsEntry{{Manager: "m"}}, want: 5},
		"it has the finalizer of tenants' pods": {pod: aPod(), namespace: []metav1.ManagedFieldsEntry{wrote(30, "", tenantLabel)}, want: 5},
		"it chose the pool's nodes": {
			pod: aPod(free, chosen), namespace: []metav1.ManagedFieldsEntry{wrote(6, "", tenantLabel)},
			node: []metav1.ManagedFieldsEntry{wrote(30, "", poolLabel)}, pool: []metav1.ManagedFieldsEntry{wrote(31, "", poolNodes)}, want: 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := aPool(func(p *v1alpha1.ComputePool) {
				p.CreationTimestamp, p.Spec.NodeSelector, p.ManagedFields = stamp(5), map[string]string{"gpu": "a100"}, tc.pool
			})
			namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.namespace}}
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.node}}
			if got := joined(tc.pod, namespace, node, pool); !got.Equal(minute(tc.want)) {
				t.Errorf("joined at %v, want minute %d", got, tc.want)
			}
		})
	}
}

func TestKeepManagers(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		wrote(1, "", poolLabel), wrote(2, "status", `{"f:status":{}}`), wrote(3, "", cordon),
	}}}
	kept, err := KeepManagers(node)
	if err != nil || kept != any(node) || len(node.ManagedFields) != 2 || node.ManagedFields[1].Time.Time != minute(3) {
		t.Errorf("kept %v of %v, %v; want the first and the third", node.ManagedFields, kept, err)
	}
	if _, err := KeepManagers("no object"); err == nil {
		t.Error("what is no object is no error")
	}
}
