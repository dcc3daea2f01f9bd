// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart: Helm's own program renders it, and what it renders is compared
// with what kustomize makes of manifests, object by object. Every difference between the two is one
// that a test here states. A real API server, with the Prometheus operator's kinds, validates both;
// test/e2e installs the chart on a real node.
package chart
