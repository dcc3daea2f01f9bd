// SPDX-License-Identifier: Apache-2.0

// Package lifecycle has the extension points that TopologyAware and NUMAAffinity share:
// from reading the pod in PreFilter to writing the choice in PreBind or Bind. Each
// plugin works alone with it, and together they make one choice and one write.
//
// Its one invariant: between a successful Reserve and the end of the binding cycle
// there is exactly one present reservation for the pod, whichever plugins run.
//
// Scores are the plugins' own, and so is the decision which pods a plugin is for.
package lifecycle
