// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAllocationOwner: an allocation is valid for its own pod and node only.
func TestAllocationOwner(t *testing.T) {
	text, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		annotations map[string]string
		uid         types.UID
		node        string
		wantErr     string
	}{
		"the pod's own on its node":     {map[string]string{Key: text}, "u", "n", ""},
		"none":                          {map[string]string{"mine": text}, "u", "n", ErrNone.Error()},
		"copied from another pod":       {map[string]string{Key: text}, "twin", "n", ErrOther.Error()},
		"of this pod for another node":  {map[string]string{Key: text}, "u", "m", ErrOther.Error()},
		"on a pod that has no node yet": {map[string]string{Key: text}, "u", "", ErrOther.Error()},
		"written by a later release":    {map[string]string{Key: `{"version":2}`}, "u", "n", ErrNewerVersion.Error()},
		"an empty text cannot be read":  {map[string]string{Key: ""}, "u", "n", "EOF"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := Of(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tc.uid, Annotations: tc.annotations}}, tc.node)
			if (a != nil) != (tc.wantErr == "") || (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("allocation %+v, error %v, want %q", a, err, tc.wantErr)
			}
		})
	}
}
