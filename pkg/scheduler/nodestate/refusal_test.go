// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestProvesNoWrite(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"400":                    {apierrors.NewBadRequest("no"), true},
		"403":                    {apierrors.NewForbidden(pods, "p", errors.New("no")), true},
		"404":                    {apierrors.NewNotFound(pods, "p"), true},
		"409":                    {apierrors.NewConflict(pods, "p", errors.New("no")), false},
		"409, it is there":       {apierrors.NewAlreadyExists(pods, "p"), false},
		"422":                    {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		"429":                    {apierrors.NewTooManyRequests("no", 1), true},
		"500":                    {apierrors.NewInternalError(errors.New("no")), false},
		"503":                    {apierrors.NewServiceUnavailable("no"), false},
		"504":                    {apierrors.NewTimeoutError("no", 1), false},
		"504, of the server":     {apierrors.NewServerTimeout(pods, "patch", 1), false},
		"no answer, in time":     {context.DeadlineExceeded, false},
		"no answer":              {errors.New("connection reset by peer"), false},
		"an answer and a wrap":   {errors.Join(errors.New("bind"), apierrors.NewNotFound(pods, "p")), true},
		"no error, of any write": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ProvesNoWrite(tc.err); got != tc.want {
				t.Errorf("%v: %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}
