// SPDX-License-Identifier: Apache-2.0

// Package lifecycle has the extension points that TopologyAware and NUMAAffinity share: from reading the
// pod in PreFilter to writing the allocation in PreBind or Bind. One of them owns a pod, depending on the
// profile and the pod's requests, and does all of that but the Binding, which is sent by the one that is
// first under bind.
//
// Its one invariant: between a successful Reserve and the end of the binding cycle there is exactly one
// present reservation for the pod, whichever plugins run.
//
// Scores are the plugins' own.
package lifecycle
