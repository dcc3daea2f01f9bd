// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 holds the fields of Kueue's kinds that the pool controller reads and writes,
// and no others. Kueue's own package wants another release of Kubernetes than the rest of this
// module (docs/decisions/0024-kueue-types.md); a test holds this one against Kueue's CRDs.
//
// What is here is less than an object has, so nothing is ever written back whole: objects of
// ours are applied, those of others are patched.
//
// +kubebuilder:object:generate=true
package v1beta2
