// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamesFor: pods of other namespaces are counted, and not named.
func TestNamesFor(t *testing.T) {
	pods := func(own, others int) (out []*v1.Pod) {
		for i := range own {
			out = append(out, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i)}})
		}
		for i := range others {
			out = append(out, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-2", Name: fmt.Sprint("secret", i)}})
		}
		return out
	}
	tests := map[string]struct {
		own, others int
		want        string
	}{
		"its own":              {2, 0, "ns/p0, ns/p1"},
		"many of its own":      {7, 0, "ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 2 more"},
		"one of another":       {0, 1, "a pod of another namespace"},
		"several of others":    {0, 3, "3 pods of other namespaces"},
		"its own, and another": {1, 1, "ns/p0 and a pod of another namespace"},
		"many of both":         {6, 2, "ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 1 more and 2 pods of other namespaces"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := NamesFor("ns", pods(tc.own, tc.others)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if got, want := ShortenedFor("ns", "pod", []string{"uid-1", "ns/p", "ns-2/secret"}), "uid-1, ns/p and a pod of another namespace"; got != want {
		t.Errorf("names without namespaces: %q, want %q", got, want)
	}
}
