// SPDX-License-Identifier: Apache-2.0

package remotesession

import "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"

// Reasons of events on sessions.
const (
	eventNameTaken     = "NameTaken"
	eventTokenReplaced = "SessionTokenReplaced"
	eventPending       = "SessionPending"
	eventReady         = "SessionReady"
	eventExpired       = "SessionExpired"
	eventFailed        = "SessionFailed"
)

// eventOf returns the reason of the event when a session enters a phase.
func eventOf(phase v1alpha1.SessionPhase) string {
	switch phase {
	case v1alpha1.SessionReady:
		return eventReady
	case v1alpha1.SessionExpired:
		return eventExpired
	case v1alpha1.SessionFailed:
		return eventFailed
	case v1alpha1.SessionPending:
	}
	return eventPending
}
