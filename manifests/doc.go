// SPDX-License-Identifier: Apache-2.0

// Package manifests embeds the project's Kubernetes manifests in the programs that
// install them.
//
// The YAML files are the only source: kustomize and this package use the same bytes.
// This package decodes them strictly. Nothing here talks to a cluster.
package manifests
