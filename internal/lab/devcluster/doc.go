// SPDX-License-Identifier: Apache-2.0

// Package devcluster runs a real Kubernetes control plane on one machine for demonstrations and
// integration tests: etcd, kube-apiserver and a few controllers in this process, kwok, the scheduler and,
// if configured, Kueue as child processes.
//
// Nodes and the pods on them are simulated; the components that a scheduler talks to are real. The
// package owns the life of all of it.
//
// Invariant: after Cluster.Stop, and after any death of this process, no child process is left, and no
// file was ever written outside Config.Dir.
//
// It does not choose the workloads of the cluster; package demo does.
package devcluster
