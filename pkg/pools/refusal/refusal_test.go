// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOf(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	quota := apierrors.NewForbidden(jobs, "train", errors.New("exceeded quota: jobs"))
	ending := apierrors.NewForbidden(jobs, "train", errors.New("it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"nothing":                {},
		"a quota":                {quota, `the API server refuses Job a/train: jobs.batch "train" is forbidden: exceeded quota: jobs`},
		"wrapped":                {fmt.Errorf("make: %w", quota), `the API server refuses Job a/train: make: jobs.batch "train" is forbidden: exceeded quota: jobs`},
		"a namespace that ends":  {err: ending},
		"what comes later":       {err: apierrors.NewConflict(jobs, "train", errors.New("changed"))},
		"a server that is away":  {err: errors.New("connection refused")},
		"an object that is none": {apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "train", nil), `the API server refuses Job a/train: Job "train" is invalid`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(tc.err, "Job a/train"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
