// SPDX-License-Identifier: Apache-2.0

// Package elasticjob runs ElasticJobs: a base Job of minReplicas that starts whole or not at all, and
// one further Job for each replica beyond them. Kueue decides which of them have quota; this package
// counts none.
//
// Its one invariant: extra Jobs exist only while the base has quota, and the package writes only to
// objects that the ElasticJob controls.
//
// Pods carry the finalizer of metering, which only metering removes. A Job can be suspended, replaced
// and deleted meanwhile: for Kueue and for the Job's controller a pod is gone once its containers have
// ended. Where no metering runs, ended pods stay until the finalizer is removed by hand.
package elasticjob
