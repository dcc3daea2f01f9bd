// SPDX-License-Identifier: Apache-2.0

// Package config holds the arguments of the plugins as they stand in a
// KubeSchedulerConfiguration: types, defaults, validation and registration.
// Importing it makes kube-scheduler decode them strictly and fill in defaults.
//
// One Go type serves both the v1 and the internal version, so that there is no
// conversion to keep in step. Its one invariant: what passes validation, the
// plugins can work with.
//
// +kubebuilder:object:generate=true
package config
