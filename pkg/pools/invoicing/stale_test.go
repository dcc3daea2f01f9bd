// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestStaleInvoices: the open invoice of an earlier account is deleted, and one that another controller has
// closed since it was read is a bill, and stays.
func TestStaleInvoices(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	invoice := func(name string) *v1alpha1.Invoice {
		return &v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.InvoiceSpec{InvoiceID: name}}
	}
	api := fake.NewClientBuilder().WithScheme(s).WithObjects(invoice("open"), invoice("closed-since"), invoice("others")).Build()
	r := &reconciler{client: api}
	var read v1alpha1.InvoiceList
	if err := api.List(t.Context(), &read); err != nil {
		t.Fatal(err)
	}
	closed := invoice("closed-since")
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(closed), closed); err != nil {
		t.Fatal(err)
	}
	closed.Spec.Finalized = true
	if err := api.Update(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	if err := r.deleteStale(t.Context(), read.Items, []string{"open", "closed-since", "gone"}); err != nil {
		t.Fatal(err)
	}
	var left v1alpha1.InvoiceList
	if err := api.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range left.Items {
		got = append(got, left.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"closed-since", "others"}, got); diff != "" {
		t.Errorf("invoices that are left (-want +got):\n%s", diff)
	}
}
