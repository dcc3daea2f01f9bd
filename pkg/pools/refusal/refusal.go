// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// EventRefused is the reason of the event about a refusal, and Reason that of the condition.
const (
	EventRefused = "Refused"
	Reason       = EventRefused
)

// Again is the time after which a refused write is retried: no event shows that it would pass now.
const Again = time.Minute

// Of returns a message on the refusal by the API server; it is empty where err is nil, or of another
// kind. object names the written object, such as "Job team-a/train-base". A namespace that is being
// deleted admits nothing new, which is no fault.
func Of(err error, object string) string {
	switch {
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return ""
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return fmt.Sprintf("the API server refuses %s: %v", object, err)
	}
	return ""
}

// Forbidden is Of without objects that the API server reports as invalid: immutable data, such as the
// end of a session, may have been written first by another leader.
func Forbidden(err error, object string) string {
	if apierrors.IsInvalid(err) {
		return ""
	}
	return Of(err, object)
}
