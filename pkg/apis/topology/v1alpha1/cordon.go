// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of ConditionCordonAcknowledged.
const (
	// ReasonNothingInFlight: the cordon is acknowledged.
	ReasonNothingInFlight = "NothingInFlight"
	// ReasonPodsInFlight: pods are being bound to the node, or may still be.
	ReasonPodsInFlight = "PodsInFlight"
	// ReasonTakingOver: the scheduler was elected so lately that its predecessor may have pods on their
	// way to the node.
	ReasonTakingOver = "TakingOver"
)

// CordonMessage is the message of ConditionCordonAcknowledged: the token of the cordon that it is about,
// and what is waited for, if anything.
func CordonMessage(token, waits string) string {
	if waits == "" {
		return token
	}
	return token + ": " + waits
}

// CordonWord is what the scheduler says of one cordon.
//
// +kubebuilder:object:generate=false
type CordonWord struct {
	Heard        bool   // it says something
	Acknowledged bool   // no pod with devices comes to the node any more
	Waits        string // what it waits for
}

// CordonWordOf reads what conditions say of the cordon with this token.
func CordonWordOf(conditions []metav1.Condition, token string) CordonWord {
	c := meta.FindStatusCondition(conditions, ConditionCordonAcknowledged)
	if c == nil {
		return CordonWord{}
	}
	of, waits, _ := strings.Cut(c.Message, ": ")
	if of != token {
		return CordonWord{}
	}
	return CordonWord{Heard: true, Acknowledged: c.Status == metav1.ConditionTrue, Waits: waits}
}
