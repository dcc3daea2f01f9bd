// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"math"
)

// Weight is a part beside the weights of others: 0.5 and 1 share as 1 and 2 do. It counts to the
// thousandth.
//
// +kubebuilder:validation:Type=number
// +kubebuilder:validation:Minimum=0.001
// +kubebuilder:validation:Maximum=10000
// +kubebuilder:validation:XValidation:rule="double(self) >= 0.001",message="weight: at least 0.001"
type Weight float64

// MarshalJSON writes the number. With it the definition's type is a number; without it controller-gen
// refuses floats, which are no amounts here but ratios.
func (w Weight) MarshalJSON() ([]byte, error) { return json.Marshal(float64(w)) }

// UnmarshalJSON reads a number, whole or not.
func (w *Weight) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*float64)(w)) }

// Thousandths is the weight in thousandths; 1000 where none is given.
func (w Weight) Thousandths() int64 {
	if w == 0 {
		return 1000
	}
	return max(1, int64(math.Round(float64(w)*1000)))
}
