// SPDX-License-Identifier: Apache-2.0

// Package devcluster runs a real Kubernetes control plane on one machine for
// demonstrations and integration tests: etcd, kube-apiserver and a few
// controllers in this process, kwok, the scheduler and, if asked for, Kueue as child
// processes.
//
// Nodes and the pods on them are simulated; everything a scheduler talks to is
// the real thing. The package owns the life of all of it.
//
// Invariant: after Cluster.Stop, and after the death of this process however
// it came about, no child process is left, and no file was ever written
// outside Config.Dir.
//
// It does not decide what runs on the cluster; package demo does.
package devcluster
