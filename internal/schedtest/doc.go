// SPDX-License-Identifier: Apache-2.0

// Package schedtest builds the pods and nodes of tests that link the scheduler. It wraps upstream's
// builders (k8s.io/kubernetes/pkg/scheduler/testing) and imports no package of ours, so that every
// package can use it in its internal tests. Tests that do not link the scheduler use internal/testobj,
// with the same names.
//
// Methods that are declared here return our wrapper and can be chained in any order. Every other method
// of upstream's wrapper can be called as well; it returns upstream's wrapper, so it comes last, before
// Obj.
package schedtest
