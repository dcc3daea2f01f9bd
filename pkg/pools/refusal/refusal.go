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

// Again is after how long a write that was refused is tried again: nothing says that it would pass now.
const Again = time.Minute

// Of says what the API server refuses; it is empty where err is none, or of another kind. object names
// what was to be written, such as "Job team-a/train-base". A namespace that ends takes nothing new,
// which is no fault.
func Of(err error, object string) string {
	switch {
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return ""
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return fmt.Sprintf("the API server refuses %s: %v", object, err)
	}
	return ""
}

// Forbidden is Of without objects that the API server calls invalid: what never changes once it is written,
// such as the end of a session, another leader may have written first.
func Forbidden(err error, object string) string {
	if apierrors.IsInvalid(err) {
		return ""
	}
	return Of(err, object)
}
