// SPDX-License-Identifier: Apache-2.0

// Package schedulerconfig checks a KubeSchedulerConfiguration: it reads it as nvtopo-scheduler does when
// it starts, and makes its profiles without a cluster. Faults are reported with the path of the field.
//
// Its one invariant: it refuses nothing with which the scheduler would start. kube-scheduler's own
// decoder, validation and constructor decide, over no objects; this package only finds the field.
package schedulerconfig
