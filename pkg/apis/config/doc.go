// SPDX-License-Identifier: Apache-2.0

// Package config holds the arguments of the plugins TopologyAware, NUMAAffinity
// and GangPlacement, as an operator writes them under pluginConfig in a
// KubeSchedulerConfiguration.
//
// Its one invariant: a plugin never sees arguments that were not decoded
// strictly and defaulted. Importing the package is enough for that: its init
// registers the types in kube-scheduler's own scheme, under
// kubescheduler.config.k8s.io/v1 and as the internal version at once. One Go type
// under both needs no conversion; it is to be split when there is a second
// external version.
//
// kube-scheduler does not validate arguments of plugins it does not know, so the
// plugins' New calls the validation of this package. What the arguments do is the
// plugins' own.
//
// +kubebuilder:object:generate=true
// +groupName=kubescheduler.config.k8s.io
package config
