// SPDX-License-Identifier: Apache-2.0

// Package manifests carries the project's Kubernetes manifests inside the
// binaries that install them.
//
// The YAML files are the only source: what kustomize assembles and what this
// package returns are the same bytes, decoded strictly. Nothing here talks to a
// cluster.
package manifests
