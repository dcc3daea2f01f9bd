// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart: Helm's own program renders it, and the result is compared with the
// kustomize build of manifests, object by object. A test here states every allowed difference. A real API
// server, with the Prometheus operator's kinds, validates both; test/e2e installs the chart on a real
// node.
package chart
