// SPDX-License-Identifier: Apache-2.0

// Package lifecycle has the extension points that TopologyAware and NUMAAffinity share:
// from reading the pod in PreFilter to writing the choice in PreBind or Bind. One of
// them owns a pod, by what the profile has and the pod asks for, and does all of that
// but the Binding, which is sent by the one that is first under bind.
//
// Its one invariant: between a successful Reserve and the end of the binding cycle
// there is exactly one present reservation for the pod, whichever plugins run.
//
// Scores are the plugins' own.
package lifecycle
