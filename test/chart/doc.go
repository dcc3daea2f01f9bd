// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart: Helm's own program renders it, and what it renders is compared
// with what kustomize makes of manifests, object by object. Every difference between the two is one
// that a test here states. test/integration applies both to a real API server, test/e2e installs the
// chart on a real node.
package chart
