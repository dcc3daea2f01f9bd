// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// TestNodeNamePermanence checks a property of the API server on which PreBind's PATCH relies: it only
// writes to a pod without a node.
func TestNodeNamePermanence(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.create(t, gpuPod("p", "nobody", 0).Obj())
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	patch := func(value string) error {
		body := []byte(`{"metadata":{"annotations":{"example.com/choice":"` + value + `"}},"spec":{"nodeName":null}}`)
		_, err := pods.Patch(t.Context(), "p", types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	if err := patch("first"); err != nil {
		t.Fatal(err)
	}
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := patch("second"); !apierrors.IsInvalid(err) {
		t.Errorf("error %v, want that the pod is invalid", err)
	}
	if got := l.get(t, "p").Annotations["example.com/choice"]; got != "first" {
		t.Errorf("annotation %q, want the first", got)
	}
}
