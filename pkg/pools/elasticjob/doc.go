// SPDX-License-Identifier: Apache-2.0

// Package elasticjob runs ElasticJobs: a base Job of minReplicas that starts whole or not at all,
// and one Job more for each replica beyond them. Kueue says which of them have quota; nothing
// here counts any.
//
// Its one invariant: there are extra Jobs only while the base has quota, and nothing is written
// to an object that the ElasticJob does not control.
//
// Pods bear the finalizer of metering, which only metering takes away. A Job can be suspended,
// replaced and deleted meanwhile: for Kueue and for the Job's controller a pod is gone once its
// containers have ended. Where no metering runs, ended pods stay until somebody takes the
// finalizer away.
package elasticjob
