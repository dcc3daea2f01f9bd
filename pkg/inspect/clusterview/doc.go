// SPDX-License-Identifier: Apache-2.0

// Package clusterview is what people are shown of a cluster: for each node its graph, which pod
// holds which GPUs, what is free and how good it is; for each part of the fabric what is free
// beside what there could be; and which pods to move so that more linked groups are free. The
// command line and others that show a cluster read it.
//
// Its one invariant: what is used is what pkg/placement/usage says, and what fits is what pkg/placement
// says, of the same objects; the package has no rules of its own for either. All functions are
// pure, and a Memo gives what they give: nothing here talks to a cluster or reads a clock.
package clusterview
